"""The pytest plugin: options, collection of cases as (backend, release) items, and reports. Hooks only."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.bench import Bench
    from conformance.cells import Cell

__all__: list[str] = []

_BENCH: pytest.StashKey[Bench] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    add = parser.getgroup("conformance", "conformance of language model implementations").addoption
    add(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="backend to judge, or `all`; may be repeated",
    )
    add("--release", action="append", default=[], metavar="R", help="release to judge; may be repeated")
    add("--family", action="append", default=[], metavar="F", help="family to judge; may be repeated")
    add("--examples", type=int, default=2, metavar="N", help="models to draw for each case (default 2)")
    add("--checkpoint", metavar="DIR", help="judge on this checkpoint instead of drawn models")
    add(
        "--release-code",
        action="append",
        default=[],
        metavar="R=WHERE",
        help="run released code: R=DIR or R=hub",
    )
    add("--shrink", type=int, default=40, metavar="N", help="models to try for smaller failures (default 40)")
    add("--html", dest="conformance_html", metavar="FILE", help="write the report as an HTML page")
    add("--json", dest="conformance_json", metavar="FILE", help="write the report as JSON")
    add(
        "--timeout-run",
        type=float,
        default=120.0,
        metavar="S",
        help="seconds that a run may take (default 120)",
    )
    add("--memory", type=float, default=8.0, metavar="GIB", help="memory that a worker may use (default 8)")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Cells(config), "conformance-cells")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    # Other people's tests are none of ours to order.
    if _BENCH not in config.stash or config.getoption("dist") != "load":
        return None
    from conformance.schedule import make_scheduler

    return make_scheduler(config, log)


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Bad input is one line on stderr and exit code 2, before anything is collected or written."""
    option = config.option
    if not (option.backend or option.release or option.family or option.checkpoint or option.release_code):
        return None
    from conformance.errors import BadInput

    try:
        config.stash[_BENCH] = _make_bench(config)
    except BadInput as error:
        sys.stderr.write(f"conformance: {error}\n")
        return 2
    return None


def _make_bench(config: pytest.Config) -> Bench:
    from conformance.bench import Bench, read_options

    # Each xdist process keeps logs of its own.
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return Bench(read_options(config.option), config.rootpath / "build" / "conformance" / worker)


class _Cells:
    """One test run: its bench, made when the first case is met, and the records of its cells."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.records: list[dict[str, Any]] = []
        self.provenance: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}

    @property
    def bench(self) -> Bench:
        if _BENCH not in self.config.stash:
            from conformance.errors import BadInput

            try:
                self.config.stash[_BENCH] = _make_bench(self.config)
            except BadInput as error:
                pytest.exit(str(error), returncode=2)
        return self.config.stash[_BENCH]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        option = self.config.option
        alone = not getattr(option, "numprocesses", None) and not hasattr(self.config, "workerinput")
        if alone and option.backend:
            self.bench.start()

    def pytest_pycollect_makeitem(self, collector: Any, name: str, obj: object) -> list[pytest.Item] | None:
        # A case can only come from this module; a run without cases never loads it.
        case_module = sys.modules.get("conformance.case")
        if case_module is None or not isinstance(obj, case_module.Case):
            return None
        return [CaseItem.make(collector, name, cell, self) for cell in self.bench.cells(obj)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        report = yield
        if isinstance(item, CaseItem) and call.when == "call" and item.record is not None:
            report.conformance = item.record
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = getattr(report, "conformance", None)
        if record is not None:
            self.records.append(record)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._merge(getattr(node, "workeroutput", {}).get("conformance", {}))

    def _merge(self, provenance: dict[str, Any]) -> None:
        """Under xdist, the process that a backend really ran in speaks for it."""
        for name, ran in provenance.items():
            known = self.provenance.get(name)
            if known is None or known["seconds"]["calls"] < ran["seconds"]["calls"]:
                self.provenance[name] = ran

    def pytest_sessionfinish(self) -> None:
        bench = self.config.stash.get(_BENCH, None)
        if bench is None:
            return
        self._merge(bench.provenance())
        self.seconds = bench.seconds()
        bench.close()
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["conformance"] = self.provenance

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.records:
            return
        from conformance.report.document import document, write_document
        from conformance.report.html import write_page
        from conformance.report.matrix import console_for, print_matrix

        terminal = terminalreporter._tw
        terminalreporter.ensure_newline()
        print_matrix(self.records, console_for(terminal._file, terminal.hasmarkup))
        option = self.config.option
        if not option.conformance_json and not option.conformance_html:
            return
        settings = {"examples": option.examples, "arguments": list(self.config.invocation_params.args)}
        report = document(self.records, self.provenance, settings, self.seconds)
        for name, write in ((option.conformance_json, write_document), (option.conformance_html, write_page)):
            if name:
                write(Path(name), report)
                if terminalreporter.verbosity >= 0:
                    terminalreporter.write_line(f"report: {name}")


class CellFailed(Exception):
    """A cell is red; the message is what the report shows."""


class CaseItem(pytest.Item):
    """One case on one backend for one release."""

    def __init__(self, *, cell: Cell, cells: _Cells, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cell = cell
        self.cells = cells
        self.record: dict[str, Any] | None = None

    @classmethod
    def make(cls, collector: Any, name: str, cell: Cell, cells: _Cells) -> pytest.Item:
        """The item of one cell, named `function[backend-release]`."""
        item = cls.from_parent(collector, name=f"{name}[{cell.label}]", cell=cell, cells=cells)
        assert isinstance(item, pytest.Item)
        return item

    def runtest(self) -> None:
        self.record = self.cells.bench.run(self.cell, self.nodeid)
        match self.record["status"]:
            case "n/a":
                pytest.skip(self.record["reason"])
            case "known":
                pytest.xfail(self.record["reason"])
            case "fail" | "error":
                raise CellFailed("\n".join(self.record["lines"]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CellFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.cell.case.id} [{self.cell.label}]"
