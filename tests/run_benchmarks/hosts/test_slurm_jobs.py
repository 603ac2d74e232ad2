"""The states of jobs are read as a real Slurm 22.05 wrote them (tests/data/slurm, recorded)."""

from __future__ import annotations

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from run_benchmarks.hosts.slurm import allocation, client, jobs
from run_benchmarks.hosts.slurm.jobs import Job, from_sacct, from_squeue, seconds_of
from run_benchmarks.hosts.slurm.node_names import count_of, expanded, folded
from run_benchmarks.hosts.slurm.nodes import from_sinfo

RECORDED = Path(__file__).parents[2] / "data" / "slurm"
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


@pytest.mark.parametrize("reason", ["AssocMaxJobsLimit", "QOSMaxNodePerUserLimit", "Resources"])
def test_what_a_user_s_other_jobs_hold_is_waited_for(reason: str) -> None:
    assert not Job(id="1", state="PENDING", reason=f"({reason})").never_begins


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


def test_a_node_that_is_down_has_failed_and_a_drained_one_is_out_of_service() -> None:
    lines = [line.split("|") for line in (RECORDED / "sinfo_N_down.txt").read_text().splitlines()]
    answer = "\n".join(f"{name}|{state}|{reason}" for name, state, _, reason, *_ in lines)
    found = from_sinfo(f"{answer}\nn4|drained|clusterdyno run X: 2|3 of 4")
    assert [node.name for node in found] == ["n1", "n2", "n3", "n4"]
    assert [node.name for node in found if node.has_failed] == ["n3"]
    assert [node.in_words for node in found if node.is_out_of_service] == [
        "n3 is down* (Not responding)",
        "n4 is drained (clusterdyno run X: 2|3 of 4)",
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


def held(monkeypatch: pytest.MonkeyPatch, *answers: Job, query_seconds: float = 0.0) -> allocation.Allocation:
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
    monkeypatch.setattr(allocation, "states_of", lambda _: list(from_sinfo("n3|down*|Not responding\nn2|idle|none")))
    assert found.over("n2") == ""
    assert found.over("n2") == (
        "Slurm's job 26 is over: a node of it failed (NODE_FAIL) on n[2-3]; n3 is down* (Not responding)"
    )
    assert told == ["NODE_FAIL"]
    monkeypatch.setattr(allocation, "END_SECONDS", 0.0)
    stuck = held(monkeypatch, *(Job(id="27", state=state) for state in states[:2]))
    stuck.on_end = found.on_end
    assert stuck.over("n2") == "" and "COMPLETING" in stuck.over("n2") and told[1:] == ["COMPLETING"]


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
    outer = {"SQUEUE_USERS": "nobody", "SACCT_FORMAT": "x", "SLURM_JOB_ID": "1", "SLURM_CONF": "/c", "HOME": "/h"}
    assert client.environment(outer) == {"SLURM_CONF": "/c", "HOME": "/h"}


def test_a_command_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    with pytest.raises(client.SlurmError, match=r"no answer within 0\.2 s") as caught:
        client.call(["sleep", "60"], seconds=0.2)
    assert caught.value.is_away


def test_the_states_of_a_thousand_nodes_jobs_are_read_in_one_answer() -> None:
    lines = [as_asked(line).partition("|")[2] for line in PENDING[1:]]
    text = "\n".join(f"{number}|{lines[number % len(lines)]}" for number in range(NODES))
    found = list(from_squeue(text))
    assert [job.id for job in found] == [str(number) for number in range(NODES)]
    assert len(list(from_sacct("\n".join(f"{n}|CANCELLED by 0|0:0|gpu[0-{n}]" for n in range(1, 64))))) == 63
