"""Runs tasks as supervised process trees on hosts without Docker, under the host's Python."""

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from container.image import ImageIdentity, ImageSpec
from protocol import safe_json
from protocol.circumstance import Circumstance, CircumstanceKind
from run_benchmarks.errors import CommandError, DeadlineError, TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.outages import Patience
from run_benchmarks.plan.plan import CasePlan, NodePlan, Plan, Task
from run_benchmarks.runtimes.base import MAX_OUTPUT_BYTES, Bound, HostPython, HostView, Readiness, RunningTask, Runtime

# Python looks first into the folder in which `-m` begins: at home, a login may have its own json.py or training.
IN_FOLDER = ("sh", "-c", 'cd "$1" && shift && exec "$@"', "sh")
SUPERVISE = ("-m", "training.benchmarks.driver.launch.supervise")
START_SECONDS = 30.0
# Blocks until the supervisor has ended: it holds the FIFO's writing end. The FIFO is first opened for both, so that
# opening it for reading never blocks. Without FIFOs it polls twice a second; a zombie that nobody reaps has ended.
WAIT = """
cd "$1" || exit 1
if [ -p alive ]; then
  [ -e exit.json ] || { exec 3<>alive 4<alive 3>&-; read -r end <&4; }
else
  pid=$(sed 's/.*"pid": \\([0-9]*\\).*/\\1/' supervisor.json)
  while [ ! -e exit.json ] && { read -r stat < "/proc/$pid/stat"; } 2>/dev/null; do
    case $stat in *") Z "*) break ;; esac
    sleep 0.5
  done
  [ -e exit.json ] || sleep 0.2
fi
cat exit.json
"""
# Arguments: state folder, code folder, interpreter, grace, bytes of output (of more, the beginning and the
# end), then what to do: output, remove or finish (both).
END = r"""
cd "$1" 2>/dev/null || exit 0
export PYTHONPATH="$2" PYTHONDONTWRITEBYTECODE=1
[ -e exit.json ] || "$3" -m training.benchmarks.driver.launch.supervise stop --grace "$4" --state "$1" || exit
size=$(wc -c < output.log)
if [ "$6" = remove ]; then
  :
elif [ "$size" -le "$5" ]; then
  cat output.log
else
  head -c "$(($5 / 4))" output.log
  printf '\n[... %s bytes are left out here ...]\n' "$((size - $5 / 4 - $5 * 3 / 4))"
  tail -c "$(($5 * 3 / 4))" output.log
fi
[ "$6" = output ] || { cd / && rm -rf "$1"; }
"""
# Prints what is known of a task that broke: its supervisor gone or stopped (state T), its command stopped or, as the
# kernel's log says, ended for lack of memory.
TROUBLE = r"""
cd "$1" 2>/dev/null || exit 0
value() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" supervisor.json; }
state() {
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return
  set -- "$2" ${stat##*) }
  if [ "${21}" = "$1" ]; then echo "$2"; fi
}
supervisor=$(value pid); command=$(value command)
if [ ! -e exit.json ]; then
  case $(state "$supervisor" "$(value start_ticks)") in
    ''|Z) echo "gone $supervisor" ;;
    T|t) echo "stopped supervisor $supervisor" ;;
  esac
  case $(state "$command" "$(value command_ticks)") in T|t) echo "stopped launcher $command" ;; esac
elif [ -n "$command" ] && dmesg 2>/dev/null | grep -q "Killed process $command "; then echo "memory $command"; fi
"""
TROUBLE_CHARACTERS = 100
REMOVE_GRACE = 5.0
# Arguments: the run's folder, the host's name in the plan: a shared home holds the other hosts' states, too.
TREES = """
for state in "$1"/*/*/"$2"_noderank[0-9]*.workload "$1"/*/*/"$2"_noderank[0-9]*.monitor; do
  [ ! -d "$state" ] || echo "$state"
done
"""
# Arguments: state folder, interpreter, folder of all code folders. Any will do: the run's may be older than ours, and
# code of version 0.1 has the supervisor one folder higher.
STOP = """
for code in "$3"/*/; do
  for module in launch.supervise supervise; do
    [ -e "$code/training/benchmarks/driver/$(echo $module | tr . /).py" ] || continue
    cd "$code" && PYTHONPATH=$code exec "$2" -m training.benchmarks.driver.$module stop --grace 2 --state "$1"
  done
done
echo "no code in $3" >&2
exit 1
"""
CLEAN_SECONDS = 60.0
MIN_PYTHON = (3, 11)
PACKAGES = ("pydantic", "psutil")
PACKAGES_OF_TORCHRUN = ("torch", "numpy")


class ProcessRuntime(Runtime):
    """Starts tasks under `driver.launch.supervise`; about `output_bytes` of a task's output are kept."""

    gives_addresses = False

    def __init__(self, output_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self._output_bytes = output_bytes

    def host_python(self, cases: Sequence[CasePlan]) -> HostPython | None:
        """The launch's own packages and those that the cases require."""
        required = [re.split(r"[<>=!~;@\[ ]", line)[0] for case in cases for line in case.requirements]
        is_torchrun = any(case.launcher == "torchrun" for case in cases)
        packages = sorted({*PACKAGES, *(PACKAGES_OF_TORCHRUN if is_torchrun else ()), *required})
        return HostPython(interpreter=_interpreter(cases), packages=tuple(packages))

    def readiness(self, host: Host, view: HostView, cases: Sequence[CasePlan]) -> Readiness:
        found = Readiness()
        if view.python is None:
            found.fail("python", view.no_python or "none", "Python 3.11 or newer", "install it or set PYTHON")
            return found
        if tuple(map(int, view.python.split(".")[:2])) < MIN_PYTHON:
            action = "install it or set PYTHON to a newer one"
            found.fail("python", f"version {view.python}", "3.11 or newer", action)
        if view.missing_packages:
            action = "pip install -r requirements/workload.txt there (and the case's requirements.txt)"
            missing = ", ".join(view.missing_packages)
            found.fail("python packages", f"without {missing}", "the workload's packages", action)
        return found

    def provide_images(
        self,
        plan: Plan,
        specs: Mapping[str, ImageSpec],
        hosts: Mapping[str, Host],
        settled: Mapping[str, ImageIdentity],
        patience: Patience,
    ) -> Mapping[str, Mapping[str, ImageIdentity]]:
        """None: processes need no images."""
        return {}

    def running_of_others(self, host: Host, key: str) -> tuple[str, ...]:
        """None: inspection/neighbours.py finds them among all processes."""
        return ()

    def clean(self, host: Host, plan: Plan) -> list[str]:
        """End the run's process trees, found by their state folders; returns the names of these."""
        trees = ["sh", "-c", TREES, "sh", plan.log_root_host, host.name]
        found = host.run(trees, deadline=CLEAN_SECONDS).stdout.splitlines()
        code = str(PurePosixPath(plan.code_dir_host).parent)
        for state in found:
            host.run(["sh", "-c", STOP, "sh", state, _interpreter(plan.cases), code], deadline=CLEAN_SECONDS)
        return [state.removeprefix(plan.log_root_host + "/") for state in found]

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        """A task, of which nothing is on the host before its start."""
        return ProcessTree(host, node, task, bound, self._output_bytes)

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        return ProcessTree(host, node, task, None, self._output_bytes)


def make(warn: Callable[[str], None], output_bytes: int) -> Runtime:
    """The runtime of plain processes; `warn` is unused: a host refuses them nothing."""
    return ProcessRuntime(output_bytes)


def state_folder(node: NodePlan, task: Task) -> str:
    """Where a task's supervisor keeps its files: beside the node's folder, not in it, since they are not collected."""
    return f"{node.log_dir_host}.{task.labels['org.clusterdyno.task']}"


def _interpreter(cases: Sequence[CasePlan]) -> str:
    return cases[0].rounds[0].nodes[0].workload.argv[0]


class ProcessTree(RunningTask):
    """A task as a supervised process tree; see RunningTask."""

    def __init__(self, host: Host, node: NodePlan, task: Task, bound: Bound | None, output_bytes: int) -> None:
        self._host, self._node, self._task, self._bound = host, node, task, bound
        self._output_bytes = output_bytes
        self._state = state_folder(node, task)

    def python_argv(self, *words: str) -> list[str]:
        """The command that runs the node's interpreter in the folder of its code."""
        folder = self._node.workdir
        # A cache beside the code would count as a changed file.
        return [
            *IN_FOLDER,
            folder,
            "env",
            f"PYTHONPATH={folder}",
            "PYTHONDONTWRITEBYTECODE=1",
            self._task.argv[0],
            *words,
        ]

    def _supervise(self, *words: str, stdin: bytes = b"", deadline: float) -> None:
        argv = self.python_argv(*SUPERVISE, *words, "--state", self._state)
        try:
            self._host.run(argv, stdin=io.BytesIO(stdin), deadline=deadline)
        except CommandError as error:
            raise TaskError(self._host.name, f"task {self._task.name}: {error}") from error

    def start(self) -> None:
        self._supervise("start", stdin=self.request(), deadline=START_SECONDS)

    def request(self) -> bytes:
        """The command that its supervisor runs."""
        assert self._bound is not None
        facts = {f"CLUSTERDYNO_SYS_{key.upper()}": value for key, value in self._bound.facts.items()}
        request = {
            "argv": self._task.bound_argv(self._bound.master_port),
            "environment": {**facts, **self._task.environment},
            "cwd": self._node.workdir,
        }
        return json.dumps(request).encode()

    def exists(self) -> bool:
        found = self._host.run(["test", "-e", f"{self._state}/supervisor.json"], deadline=START_SECONDS, check=False)
        return found.exit_code == 0

    def trace(self) -> None:
        self._supervise("trace", deadline=START_SECONDS)

    def wait(self, seconds: float) -> int | None:
        try:
            completed = self._host.run(["sh", "-c", WAIT, "sh", self._state], deadline=seconds)
            ended = safe_json.load(completed.stdout)
        except DeadlineError:
            return None
        except (CommandError, safe_json.UnsafeJsonError) as error:
            raise TaskError(self._host.name, f"task {self._task.name} vanished without an exit code") from error
        code = ended.get("exit_code") if isinstance(ended, dict) else None
        if not isinstance(code, int):
            raise TaskError(self._host.name, f"task {self._task.name} ended without an exit code")
        return code

    def trouble(self) -> Circumstance | None:
        found = self._host.run(["sh", "-c", TROUBLE, "sh", self._state], deadline=START_SECONDS).stdout
        what, *words = (found.splitlines() or ["nothing"])[0][:TROUBLE_CHARACTERS].split()
        if what == "gone":
            return Circumstance(kind=CircumstanceKind.TASK, words=f"its supervisor (process {words[0]}) was killed")
        if what == "stopped":
            return Circumstance(
                kind=CircumstanceKind.PAUSED, words=f"its {words[0]} (process {words[1]}) is stopped (SIGSTOP)"
            )
        if what == "memory":
            words_ = f"the kernel ended its launcher (process {words[0]}) for lack of memory"
            return Circumstance(kind=CircumstanceKind.MEMORY, words=words_)
        return None

    def stop(self, grace: float) -> None:
        self._supervise("stop", "--grace", f"{grace:g}", deadline=grace + START_SECONDS)

    def output(self, grace: float) -> str:
        return self._end(grace, "output")

    def remove(self) -> None:
        self._end(REMOVE_GRACE, "remove")

    def finish(self, grace: float) -> str:
        """End the task within `grace` seconds, remove it and return its output, in one round trip."""
        return self._end(grace, "finish")

    def _end(self, grace: float, what: str) -> str:
        python, output_bytes = self._task.argv[0], str(self._output_bytes)
        words = [self._state, self._node.workdir, python, f"{grace:g}", output_bytes, what]
        argv = ["sh", "-c", END, "sh", *words]
        return self._host.run(argv, deadline=grace + START_SECONDS).stdout
