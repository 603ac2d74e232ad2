"""Options of run.py, valid before and after a command: the one after it wins."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from run_benchmarks import __version__
from run_benchmarks.commands.run_reference import find_run
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.console.language import Language
from run_benchmarks.session.preparation import checked_settings
from run_benchmarks.session.revision import revision
from run_benchmarks.settings.changes import Changes
from run_benchmarks.settings.host_selection import HostSelection
from run_benchmarks.settings.settings import Settings

CONFIG = ROOT / "run_benchmarks" / "config"
DEFAULT_CLUSTER = CONFIG / "cluster_conf.py"
DEFAULT_TEST = CONFIG / "test_conf.py"


def _print_version(asked: bool) -> None:
    if asked:
        commit = revision(ROOT, ()).name
        typer.echo(f"ClusterDyno {__version__}" + (f" ({commit})" if commit else ""))
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="the version, and the commit of a checkout"),
]
ClusterConfOption = Annotated[
    Path | None,
    typer.Option(
        "--cluster-conf",
        metavar="F",
        dir_okay=False,
        help="file with the hosts; default: run_benchmarks/config/cluster_conf.py",
    ),
]
TestConfOption = Annotated[
    Path | None,
    typer.Option(
        "--test-conf",
        metavar="F",
        dir_okay=False,
        help="file with the cases; default: run_benchmarks/config/test_conf.py",
    ),
]
HostsOption = Annotated[str | None, typer.Option("--hosts", help="only these of HOSTS, in this order", metavar="A,B")]
ExcludeOption = Annotated[str | None, typer.Option("--exclude", help="leave out these of HOSTS", metavar="A,B")]
CaseOption = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="NAME", help="only this one of CASES; a pattern (*, ?) matches several; repeatable"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="K=V",
        help="a setting of either file, CASE.key=V of a case or CASE.overrides.key=V of its config; repeatable",
    ),
]
RepeatOption = Annotated[int | None, typer.Option("--repeat", metavar="N", help="number of rounds of every case")]
DetachOption = Annotated[bool, typer.Option("--detach", help="run in the background; see `status` and `attach`")]
SaveOption = Annotated[
    Path | None,
    typer.Option("--save-baseline", help="save the measurements as a baseline if all cases pass", metavar="F"),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite-baseline", help="replace that file if it exists")]
LanguageOption = Annotated[Language, typer.Option("--lang", help="language of headings and sentences")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="a run's name, e.g. run20261121191924, or the path of its result folder")
]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of a command line; None and empty if not given."""

    cluster_conf: Path | None = None
    test_conf: Path | None = None
    selection: HostSelection = field(default_factory=HostSelection)
    changes: Changes = field(default_factory=Changes)

    def over(self, before: Request) -> Request:
        """These options, and those before the command where one is missing here; --set of both."""
        hosts, exclude = self.selection.hosts, self.selection.exclude
        return Request(
            cluster_conf=self.cluster_conf or before.cluster_conf,
            test_conf=self.test_conf or before.test_conf,
            selection=HostSelection(
                hosts=before.selection.hosts if hosts is None else hosts,
                exclude=before.selection.exclude if exclude is None else exclude,
            ),
            changes=Changes(
                sets=before.changes.sets + self.changes.sets,
                cases=self.changes.cases or before.changes.cases,
                repeat=before.changes.repeat if self.changes.repeat is None else self.changes.repeat,
            ),
        )

    @property
    def is_selecting(self) -> bool:
        """Whether it selects or changes anything in the files."""
        return self.selection != HostSelection() or self.changes != Changes()

    def settings(self) -> Settings:
        """The settings of both files with the changes of the command line.

        Raises:
            ConfigError: a file or a change on the command line is wrong.
        """
        files = self.cluster_conf or DEFAULT_CLUSTER, self.test_conf or DEFAULT_TEST
        return checked_settings(*files, self.changes, self.selection)


def request(
    cluster_conf: Path | None,
    test_conf: Path | None,
    hosts: str | None = None,
    exclude: str | None = None,
    case: list[str] | None = None,
    sets: list[str] | None = None,
    repeat: int | None = None,
) -> Request:
    """A Request of options as typer gives them."""
    return Request(
        cluster_conf=cluster_conf,
        test_conf=test_conf,
        selection=HostSelection(hosts=hosts, exclude=exclude),
        changes=Changes(sets=tuple(sets or ()), cases=tuple(case or ()), repeat=repeat),
    )


def selecting(command: Callable[[Request], None]) -> Callable[..., None]:
    """Add all options that select hosts and cases to a command that takes a Request."""

    def with_options(
        context: typer.Context,
        cluster_conf: ClusterConfOption = None,
        test_conf: TestConfOption = None,
        hosts: HostsOption = None,
        exclude: ExcludeOption = None,
        case: CaseOption = None,
        sets: SetOption = None,
        repeat: RepeatOption = None,
    ) -> None:
        asked = request(cluster_conf, test_conf, hosts, exclude, case, sets, repeat)
        command(asked.over(context.obj))

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    return with_options


def of_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Add RUN and the two files to a command that takes a Request, the run's folder, and options of its own.

    Raises:
        ConfigError: by the command: there is no such run.
    """

    def with_options(
        context: typer.Context,
        run_id: RunArgument,
        cluster_conf: ClusterConfOption = None,
        test_conf: TestConfOption = None,
        **own: object,
    ) -> None:
        asked = asked_for(context, cluster_conf, test_conf)
        command(asked, find_run(run_id, asked.test_conf, DEFAULT_TEST), **own)

    ours = [each for each in inspect.signature(with_options).parameters.values() if each.name != "own"]
    hints = get_type_hints(command, include_extras=True)
    own = [each.replace(kind=each.KEYWORD_ONLY, annotation=hints[each.name]) for each in _own(command)]
    given = get_type_hints(with_options, include_extras=True)
    signature = inspect.Signature([*(each.replace(annotation=given[each.name]) for each in ours), *own])
    with_options.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    with_options.__dict__["__signature__"] = signature
    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    return with_options


def _own(command: Callable[..., None]) -> list[inspect.Parameter]:
    """The parameters after the first two."""
    return [*inspect.signature(command).parameters.values()][2:]


def asked_for(context: typer.Context, cluster_conf: Path | None, test_conf: Path | None) -> Request:
    """The request of a command that takes the two files and no selection."""
    before: Request = context.obj
    return request(cluster_conf, test_conf).over(before)
