"""The states of jobs are read as a real Slurm 22.05 wrote them (tests/data/slurm, recorded)."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from run_benchmarks.hosts.slurm import allocation, client, jobs
from run_benchmarks.hosts.slurm.jobs import Job, from_sacct, from_squeue, seconds_of
from run_benchmarks.hosts.slurm.node_names import count_of, expanded, folded
from run_benchmarks.hosts.slurm.nodes import from_sinfo
from run_benchmarks.session.allocation import _ender
from run_benchmarks.state.interruption import Interruption

RECORDED = Path(__file__).parents[2] / "data" / "slurm"
DOWN = "n3|down*|root|Not responding\nn2|idle|Unknown|none"
PENDING = (RECORDED / "squeue_pending_reasons.txt").read_text().splitlines()
COLUMNS = PENDING[0].split("|")
NODES = 1000


def as_asked(line: str) -> str:
    """A recorded line of squeue with the columns that we ask for; time left was not recorded."""
    values = dict(zip(COLUMNS, line.split("|"), strict=True))
    return "|".join(
        [
            *(values[key] for key in ("JOBID", "STATE", "NODELIST")),
            "0:00",
            *(values[key] for key in ("SUBMIT_TIME", "START_TIME", "REASON")),
        ]
    )


def accounted(name: str, *columns: int) -> list[Job]:
    """The jobs of a recorded answer of sacct, whose columns id, state, exit code and nodes these are."""
    lines = (line.split("|") for line in (RECORDED / name).read_text().splitlines())
    return list(
        from_sacct("\n".join("|".join(line[column] for column in columns) for line in lines if "." not in line[0]))
    )


def test_a_reason_with_commas_and_blanks_stays_whole() -> None:
    found = {job.id: job for job in from_squeue("\n".join(map(as_asked, PENDING[1:])))}
    assert found["35"].reason == "ReqNodeNotAvail, UnavailableNodes:n2"
    assert found["34"].reason.startswith("Nodes required for job are DOWN, DRAINED or reserved")
    assert found["39"].hosts == ("n1", "n3") and not found["39"].is_waiting
    assert found["40"].start == "2026-11-23T16:45:15" and found["35"].start == ""


def test_a_job_s_time_in_the_queue_ends_with_its_start() -> None:
    """By the accounts as JSON, whose times are epoch seconds, of a job that scontrol shows with local times."""
    accounts = json.loads((RECORDED / "sacct_one_job.json").read_text())["jobs"][0]
    shown = (RECORDED / "scontrol_job_nodefail_requeued_shrunk.txt").read_text().partition("\n\n")[0]
    values = dict(re.findall(r"(SubmitTime|StartTime)=(\S+)", shown))
    (job,) = from_squeue(f"26|RUNNING|n[2-3]|59:31|{values['SubmitTime']}|{values['StartTime']}|None")
    assert job.queue_seconds == accounts["time"]["start"] - accounts["time"]["submission"] == 1
    (waiting,) = from_squeue(as_asked(next(line for line in PENDING if line.startswith("40|"))))
    assert waiting.submitted and waiting.start and waiting.queue_seconds is None


def test_only_reasons_that_do_not_pass_end_the_waiting() -> None:
    found = {job.id: job for job in from_squeue("\n".join(map(as_asked, PENDING[1:])))}
    assert {number for number, job in found.items() if job.never_begins} == {"38", "43", "44"}
    assert all(found[number].is_waiting for number in ("34", "35", "36", "37", "40"))


# Words of Slurm's page job_reason_codes and of its man page of squeue: whether what they name comes by itself.
REASONS = {
    False: "AccountNotAllowed AssociationTimeLimit AssocMaxBBMinutesPerJob AssocMaxCpuPerJobLimit AssocMaxGRESPerNode "
    "AssocMaxWallDurationPerJobLimit BadConstraints DependencyNeverSatisfied InvalidAccount InvalidQOS JobHeldAdmin "
    "JobHeldUser JobHoldMaxRequeue MaxMemPerLimit PartitionConfig PartitionNodeLimit PartitionTimeLimit "
    "QOSMaxCpuMinutesPerJobLimit QOSMaxMemoryPerJob QOSMaxNodePerJobLimit QOSMinCpuNotSatisfied QOSMinGRES "
    "QOSNotAllowed QOSTimeLimit ReservationDeleted ReservationInvalid",
    True: "AssocGrpCpuLimit AssocMaxJobsLimit AssociationJobLimit BeginTime BurstBufferStageIn Cleaning Dependency "
    "Licenses MaxCpuPerAccount None PartitionDown Priority Prolog QOSGrpNodeLimit QOSJobLimit QOSMaxGRESPerUser "
    "QOSMaxNodePerUserLimit QOSUsageThreshold ReqNodeNotAvail Reservation Resources",
}
HELD = ("launch failed requeued held", "job requeued in held state", "user env retrieval failed requeued held")


@pytest.mark.parametrize(("passes", "words"), [*((key, text.split()) for key, text in REASONS.items()), (False, HELD)])
def test_what_does_not_come_by_itself_is_not_waited_for_and_what_other_jobs_hold_is(
    passes: bool, words: Sequence[str]
) -> None:
    for reason in words:
        for shown in (reason, f"({reason})", f"{reason}, or so"):
            assert Job(id="1", state="PENDING", reason=shown).never_begins is not passes, reason
        assert not Job(id="1", state="RUNNING", reason=reason).never_begins


# The recorded answers of sacct, and which of their columns are id, state, exit code and nodes (their INDEX).
ACCOUNTS = {
    "sacct_all.txt": (0, 3, 4, 8),
    "sacct_nodefail.txt": (0, 3, 4, 11),
    "sacct_preempted_cancelled.txt": (0, 1, 2, 5),
    "sacct_preempted_requeued.txt": (0, 1, 2, 5),
}


@pytest.mark.parametrize(("name", "columns"), ACCOUNTS.items())
def test_each_job_of_the_recorded_accounts_has_its_word_its_nodes_and_its_end(
    name: str, columns: tuple[int, int, int, int]
) -> None:
    with (RECORDED / name).open(newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="|", quoting=csv.QUOTE_NONE) if "." not in row[0]]
    found = accounted(name, *columns)
    assert len(found) == len(rows) > 0
    for job, row in zip(found, rows, strict=True):
        number, state, _, nodes = (row[column] for column in columns)
        assert (job.id, job.state) == (number, re.split("[ +]", state)[0])
        first, _, last = re.sub(r"[^0-9,-]", "", nodes).replace(",", "-").partition("-")
        assert job.hosts[:1] + job.hosts[-1:] == ((f"n{first}", f"n{last or first}") if first else ())
        assert job.has_no_nodes is (job.state not in ("RUNNING", "RESIZING"))
        assert job.state in job.end_in_words and (not job.reason or job.reason in job.end_in_words)
    assert {job.reason for job in found if job.state == "CANCELLED"} <= {"", "by 0", "by 7101"}


def moments(name: str, number: str) -> Iterator[tuple[str, str]]:
    """The answers of squeue and sacct about a job at each moment of a recorded timeline, in our columns."""
    for line in (RECORDED / name).read_text().splitlines():
        queue, _, accounts = line.split(None, 1)[1].split("||")
        (shown,) = [each.split() for each in queue.split(" ; ") if each.split()[0] == number]
        state, reason, nodes = shown[1], shown[2], shown[3] if len(shown) > 3 else ""
        rows = [each.strip() for each in accounts.strip().removeprefix("sacct ").split(" ; ")]
        of_job = "\n".join(row for row in rows if row.startswith(f"{number}|"))
        yield f"{number}|{state}|{nodes}|1:00|2026-11-23T16:37:16|N/A|{reason}", of_job


@pytest.mark.parametrize(
    ("name", "number", "words", "is_verdict_on_a_host"),
    [
        ("timeline_node_killed.txt", "26", r"a node of it failed \(NODE_FAIL\) on n\[2-3\]; n3 is down", True),
        (
            "timeline_node_killed.txt",
            "27",
            r"job 27 .* \(NODE_FAIL\) on n\[2-3\]; n3 is down",
            True,
        ),  # before its requeue
        ("timeline_node_killed.txt", "28", r"\(NODE_FAIL, COMPLETED without n3\) on n\[2-3\]; n3 is down", True),
        ("timeline_requeue.txt", "66", r"put job 66 back into the queue \(REQUEUED\)", False),
        ("poll_preempt_cancel.txt", "31", r"a job of higher priority took its nodes \(PREEMPTED\) on n\[1-3\]", False),
        ("poll_preempt_requeue.txt", "29", r"a job of higher priority took its nodes \(PREEMPTED\) on n\[1-3\]", False),
    ],
)
def test_a_recorded_end_is_told_once_and_in_slurm_s_words(
    name: str, number: str, words: str, is_verdict_on_a_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of timelines as squeue and the accounts told them, each moment a query."""
    answers = [*moments(name, number)]
    asked = iter(answers)
    now = dict[str, str]()

    def answer(argv: list[str]) -> str:
        if argv[0] == "squeue":
            now["squeue"], now["sacct"] = next(asked)
        return now[argv[0]]

    monkeypatch.setattr(jobs, "call", answer)
    monkeypatch.setattr(allocation, "call", lambda argv, **_: "")
    monkeypatch.setattr(allocation, "QUERY_SECONDS", 0.0)
    monkeypatch.setattr(allocation, "states_of", lambda _: from_sinfo(DOWN))
    held, told, interruption = allocation.Allocation(number=number, is_ours=True), list[Job](), Interruption("clean")
    held.on_end = told.append
    host = "n2" if "node_killed" in name else "n1"
    said = [over for _ in answers[:-1] if (over := held.over(host))]
    assert re.search(words, said[0]), said
    assert len(told) == 1 and told[0].state in said[0]
    _ender(interruption)(told[0])
    assert interruption.is_set() is not is_verdict_on_a_host


def test_a_job_is_known_by_the_id_that_it_has_in_slurm_job_id() -> None:
    """Not by the one that squeue shows by default of a task of an array, or of a part of a heterogeneous job."""
    for listed in (jobs.squeue_argv(["15"])[-1], jobs.sacct_argv(["15"])[-1]):
        assert re.search(r"=(%A\||JobIDRaw,)", listed), "man squeue, man sacct: unique for each task and part"
    rows = "15|RUNNING|0:0|n[1-2]\n15.batch|RUNNING|0:0|n1\n15.extern|RUNNING|0:0|n[1-2]\n15.0|OUT_OF_MEMORY|0:125|n1"
    assert [job.state for job in from_sacct(rows) if job.id == "15"] == ["RUNNING"], "steps are none of its states"


@pytest.mark.parametrize(
    ("row", "state", "hosts"),
    [
        ("15|CANCELLED by 1000|0:0|None assigned", "CANCELLED", ()),
        ("15|CANCELLED+|0:15|n1", "CANCELLED", ("n1",)),  # where the column is narrow
        ("15|NODE_FAIL|1:0|gpu[001-003,010]", "NODE_FAIL", ("gpu001", "gpu002", "gpu003", "gpu010")),
        ("15|UNKNOWN||", "UNKNOWN", ()),
        ("15|FAILED|0:0|n1", "FAILED", ("n1",)),  # the exit code comes later: 4:0
    ],
)
def test_rows_of_the_accounts_of_other_versions(row: str, state: str, hosts: tuple[str, ...]) -> None:
    (job,) = from_sacct(row)
    assert (job.state, job.hosts) == (state, hosts)


def test_a_requeued_job_has_an_incarnation_for_each_start() -> None:
    failed = accounted("sacct_nodefail.txt", 0, 3, 4, 11)
    assert [(job.id, job.state) for job in failed] == [
        ("26", "NODE_FAIL"),
        ("27", "NODE_FAIL"),
        ("28", "RESIZING"),
        ("28", "COMPLETED"),
        ("27", "PENDING"),
    ]
    assert failed[0].hosts == ("n2", "n3") and failed[-1].hosts == ()
    preempted = accounted("sacct_preempted_requeued.txt", 0, 1, 2, 5)
    assert [job.state for job in preempted] == ["PREEMPTED", "PENDING"]
    assert "PREEMPTED" in preempted[0].end_in_words


@pytest.mark.parametrize(
    ("squeue", "sacct", "state"),
    [  # a node was killed: 28.8 s and 36.1 s later, and while slurmdbd was behind
        ("26|COMPLETING|n2|0:00|2026-11-23T16:37:16|N/A|NodeDown", "26|NODE_FAIL|0:0|n[2-3]", "NODE_FAIL"),
        ("26|NODE_FAIL|n[2-3]|0:00|2026-11-23T16:37:16|N/A|NodeDown", "26|RUNNING|0:0|n[2-3]", "NODE_FAIL"),
        ("26|COMPLETING|n2|0:00|2026-11-23T16:37:16|N/A|NodeDown", "26|RUNNING|0:0|n[2-3]", "COMPLETING"),
        (
            "27|COMPLETING|n2|0:00|2026-11-23T16:37:16|N/A|None",
            "27|NODE_FAIL|0:0|n[2-3]\n27|PENDING|0:0|None assigned",
            "PENDING",
        ),
        ("52|FAILED|n3|0:00|2026-11-23T16:37:16|N/A|NonZeroExitCode", "52|FAILED|0:0|n3", "FAILED"),
        ("52|COMPLETING|n3|0:00|2026-11-23T16:37:16|N/A|None", None, "COMPLETING"),  # slurmdbd is away
        (None, "48|CANCELLED by 7101|0:9|n3", "CANCELLED"),
        (None, "", None),
    ],
)
def test_an_end_is_slurmctld_s_and_else_that_of_the_accounts(
    squeue: str | None, sacct: str | None, state: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(argv: list[str]) -> str:
        if argv[0] == "sacct":
            if sacct is None:
                raise client.SlurmError(argv, "Unable to connect to slurmdbd", is_away=False)
            return sacct
        if squeue is None:
            raise client.SlurmError(argv, "slurm_load_jobs error: Invalid job id specified", is_away=False)
        return squeue

    monkeypatch.setattr(jobs, "call", answer)
    found = jobs.job_of((squeue or sacct or "1").split("|")[0])
    assert (found and found.state) == state


def test_a_step_that_ended_while_its_job_goes_on_is_told_in_the_word_of_the_accounts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The recorded steps, and one of a cluster with control groups; a thousand nodes that fail ask once."""
    rows = [line.split("|") for line in (RECORDED / "sacct_steps.txt").read_text().splitlines()]
    recorded = "".join(f"{row[0]}|{row[2]}|{row[3]}|{row[1]}-{row[0]}\n" for row in rows)
    asked = Counter[str]()

    def answer(argv: Sequence[str]) -> str:
        asked.update(argv[:1])
        return f"{recorded}48.3|OUT_OF_MEMORY|0:125|run-one-r1-n1\n48.4|COMPLETED|0:0|run-one-r1-n0\n"

    monkeypatch.setattr(jobs, "call", answer)
    held = allocation.Allocation(number="48", is_ours=True)
    assert held.step_end("run-one-r1-n1") == "Slurm ended its step 48.3 (OUT_OF_MEMORY, exit code 0:125)"
    assert held.step_end("sleep-48.0") == "Slurm ended its step 48.0 (CANCELLED by 7101, exit code 0:9)"
    assert [held.step_end(name) for name in ("run-one-r1-n0", "batch-48.batch", "bash-48.2", "steps-48", "?")] == [
        ""
    ] * 5
    assert asked == {"sacct": 1}
    away = allocation.Allocation(number="48", is_ours=True)
    monkeypatch.setattr(jobs, "call", lambda argv: (_ for _ in ()).throw(client.SlurmError(argv, "?", is_away=False)))
    assert away.step_end("run-one-r1-n1") == ""


def test_a_node_that_is_down_has_failed_and_a_drained_one_is_out_of_service() -> None:
    lines = [line.split("|") for line in (RECORDED / "sinfo_N_down.txt").read_text().splitlines()]
    answer = "\n".join(f"{name}|{state}|{by}|{reason}" for name, state, _, reason, _, by in lines)
    found = from_sinfo(f"{answer}\nn4|drained|alice|clusterdyno run X: 2|3 of 4")
    assert [node.name for node in found] == ["n1", "n2", "n3", "n4"]
    assert [node.name for node in found if node.has_failed] == ["n3"]
    assert [node.in_words for node in found if node.is_out_of_service] == [
        "n3 is down* (Not responding)",
        "n4 is drained (clusterdyno run X: 2|3 of 4; by alice)",
    ]


# Slurm's page job_state_codes of 24.05, all names: whether such a job waits for nodes, has them, or has lost them.
STATE_CODES = {
    "waits": "PENDING CONFIGURING EXPEDITING POWER_UP_NODE REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD "
    "SPECIAL_EXIT",
    "works": "RUNNING SUSPENDED RESIZING SIGNALING STAGE_OUT STOPPED UPDATE_DB A_WORD_OF_TOMORROW",
    "is over": "BOOT_FAIL CANCELLED COMPLETED COMPLETING DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY "
    "PREEMPTED RECONFIG_FAIL REVOKED TIMEOUT",
}


@pytest.mark.parametrize(("kind", "words"), STATE_CODES.items())
def test_each_state_of_later_versions_is_known(kind: str, words: str) -> None:
    for word in words.split():
        job = Job(id="1", state=word)
        found = "waits" if job.is_waiting else "is over" if job.is_over else "works"
        assert (found, job.has_no_nodes) == (kind, kind != "works"), word


def held(monkeypatch: pytest.MonkeyPatch, *answers: Job | None, query_seconds: float = 0.0) -> allocation.Allocation:
    """An allocation whose queries have these answers, the last one for ever."""
    left = [*answers]
    monkeypatch.setattr(allocation, "QUERY_SECONDS", query_seconds)
    monkeypatch.setattr(allocation, "call", lambda argv, **_: "")
    monkeypatch.setattr(jobs, "job_of", lambda _: left.pop(0) if len(left) > 1 else left[0])
    return allocation.Allocation(number="26", is_ours=True)


def test_a_job_that_completes_is_not_judged_before_slurm_says_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the recorded timelines: COMPLETING for seconds, then NODE_FAIL in squeue, or in the accounts."""
    states = ("RUNNING", "COMPLETING", "COMPLETING", "NODE_FAIL")
    found = held(monkeypatch, *(Job(id="26", state=state, hosts=("n2", "n3")) for state in states))
    told: list[str] = []
    found.on_end = lambda job: told.append(job.state)
    monkeypatch.setattr(allocation, "states_of", lambda _: from_sinfo(DOWN))
    assert found.over("n2") == ""
    assert found.over("n2") == (
        "Slurm's job 26 is over: a node of it failed (NODE_FAIL) on n[2-3]; n3 is down* (Not responding)"
    )
    assert told == ["NODE_FAIL"]
    monkeypatch.setattr(allocation, "END_SECONDS", 0.0)
    stuck = held(monkeypatch, *(Job(id="27", state=state, hosts=("n2",)) for state in states[:2]))
    stuck.on_end = found.on_end
    assert stuck.over("n2") == "" and "COMPLETING" in stuck.over("n2") and told[1:] == ["COMPLETING"]


def test_a_job_that_slurm_has_forgotten_is_over_and_one_that_it_does_not_know_yet_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """slurmctld forgets an ended job after MinJobAge, and not every cluster keeps accounts."""
    found = held(monkeypatch, None, Job(id="26", state="RUNNING", hosts=("n2",)), None)
    told: list[str] = []
    found.on_end = lambda job: told.append(job.state)
    assert [found.over("n2") for _ in range(2)] == ["", ""] and told == []
    assert "slurmctld no longer knows it" in found.over("n2") and told == ["FORGOTTEN"]


def test_a_forgotten_job_s_end_is_asked_for_again_while_the_accounts_do_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else one query that slurmdbd misses makes the loss of a node a job of which nobody knows how it ended."""
    running, preempted = "26|RUNNING|n2|9:00|2026-11-23T16:37:16|N/A|None", "26|PREEMPTED|0:0|n2"
    answers: list[str | None] = [running, None, None, None, preempted]

    def answer(argv: list[str]) -> str:
        if (said := answers.pop(0)) is None:
            words = "Invalid job id specified" if argv[0] == "squeue" else "Connection refused"
            raise client.SlurmError(argv, words, is_away=argv[0] == "sacct")
        return said

    monkeypatch.setattr(allocation, "QUERY_SECONDS", 0.0)
    monkeypatch.setattr(allocation, "call", lambda argv, **_: "")
    monkeypatch.setattr(jobs, "call", answer)
    found, told = allocation.Allocation(number="26", is_ours=True), list[str]()
    found.on_end = lambda job: told.append(job.state)
    assert [found.over("n2") for _ in range(2)] == ["", ""] and told == []
    assert "PREEMPTED" in found.over("n2") and told == ["PREEMPTED"]
    answers += [running, None, None]
    monkeypatch.setattr(allocation, "END_SECONDS", 0.0)
    other = allocation.Allocation(number="26", is_ours=True)
    assert other.over("n2") == "" and "slurmctld no longer knows it" in other.over("n2"), "it is not asked for ever"


def test_the_jobs_that_have_not_ended_are_found_whatever_their_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """squeue finds a job with a flag of its state, such as REQUEUE_HOLD or STOPPED, by that word alone."""
    ended = {*STATE_CODES["is over"].split()}
    states = [word for words in STATE_CODES.values() for word in words.split()]
    rows = "".join(f"{number}|{state}|a|{state}\n" for number, state in enumerate(states))
    monkeypatch.setattr(allocation, "call", lambda argv: rows if "--states=all" in argv else "")
    assert {*allocation.own_jobs().values()} == {f"a|{state}" for state in states if state not in ended}


def test_all_threads_together_ask_once_in_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert allocation.QUERY_SECONDS >= 5
    found, asked = (
        held(monkeypatch, Job(id="26", state="RUNNING"), query_seconds=allocation.QUERY_SECONDS),
        Counter[str](),
    )
    monkeypatch.setattr(allocation, "call", lambda argv, **_: asked.update([argv[0]]))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(found.over, ["n1"] * 500))
    assert asked == {"scontrol": 1}, "a ping before the one query"


def test_processors_of_a_node_are_those_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (RECORDED / "scontrol_job_nodefail_requeued_shrunk.txt").read_text()
    monkeypatch.setattr(allocation, "call", lambda argv: text.replace("CPU_IDs=0 ", "CPU_IDs=0-3,8 "))
    held = allocation.Allocation(number="26", is_ours=False)
    assert (held.cpus("n3"), held.cpus("n9")) == (5, 1)
    own, *others = text.split("\n\n")
    other = "\n\n".join([own, own.replace("JobId=26 ", "JobId=27 ").replace("CPU_IDs=0 ", "CPU_IDs=4-7 "), *others])
    monkeypatch.setattr(allocation, "call", lambda argv: other)
    assert allocation.Allocation(number="26", is_ours=False).cpus("n3") == 1, "not those of another task of its array"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("59", None), ("1:00", 60), ("2:03:04", 7384), ("1-00:00:01", 86401), ("UNLIMITED", None), ("INVALID", None)],
)
def test_slurm_s_times_are_seconds(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_host_lists_are_read_and_written_as_slurm_does() -> None:
    assert expanded("gpu[01-03],login1") == ("gpu01", "gpu02", "gpu03", "login1")
    assert folded(["n1", "n3", "n2"]) == "n[1-3]" and count_of("0-3,8") == 5
    with pytest.raises(ValueError, match="is no list of hosts"):
        expanded("gpu[1-")


def test_the_user_s_own_formats_and_the_job_around_us_are_left_out() -> None:
    kept = {"SLURM_CONF": "/c", "SLURM_JWT": "token", "HOME": "/h"}
    users_own = (
        "SQUEUE_USERS",
        "SACCT_FORMAT",
        "SINFO_FORMAT",
        "SLURM_JOB_ID",
        "SLURM_TIME_FORMAT",
        "SBATCH_PARTITION",
    )
    sparing = ("SCANCEL_STATE", "SCANCEL_INTERACTIVE", "SCANCEL_USER")  # with which scancel cancels nothing
    assert client.environment(kept | dict.fromkeys((*users_own, *sparing), "x")) == kept


def test_a_command_that_does_not_answer_is_ended() -> None:
    with pytest.raises(client.SlurmError, match=r"no answer within 0\.2 s") as caught:
        client.call(["sleep", "60"], seconds=0.2)
    assert caught.value.is_away


def test_the_states_of_a_thousand_nodes_jobs_are_read_in_one_answer() -> None:
    lines = [as_asked(line).partition("|")[2] for line in PENDING[1:]]
    text = "\n".join(f"{number}|{lines[number % len(lines)]}" for number in range(NODES))
    found = list(from_squeue(text))
    assert [job.id for job in found] == [str(number) for number in range(NODES)]
    assert len(list(from_sacct("\n".join(f"{n}|CANCELLED by 0|0:0|gpu[0-{n}]" for n in range(1, 64))))) == 63
