"""Makes the drain list of a run from the findings of its rounds: the hosts to take out of service, and why."""

from collections.abc import Iterator, Mapping, Sequence

from protocol.finding import PartFinding
from run_benchmarks.results.records import DrainEvidence, DrainRecord, RoundRecord, RunRecord


def drain_list(rounds: Mapping[str, Sequence[RoundRecord]]) -> list[DrainRecord]:
    """The hosts that findings say to take out of service, those with most findings first; `rounds` are by case."""
    reasons: dict[str, dict[tuple[str, str], list[int]]] = {}
    first: dict[tuple[str, str], PartFinding] = {}
    for case, records in rounds.items():
        for record in records:
            for finding in record.findings:
                first.setdefault((case, finding.sentence), finding)
                for host in finding.drained_hosts:
                    seen = reasons.setdefault(host, {}).setdefault((case, finding.sentence), [])
                    seen.append(record.round)
    ordered = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        DrainRecord(
            host=host,
            reasons=[_reason(case, words, numbers) for (case, words), numbers in found.items()],
            evidence=[_evidence(case, first[case, words], numbers) for (case, words), numbers in found.items()],
        )
        for host, found in ordered
    ]


def _evidence(case: str, finding: PartFinding, rounds: Sequence[int]) -> DrainEvidence:
    return DrainEvidence(
        case=case,
        rounds=list(rounds),
        part=finding.part,
        hosts=list(finding.hosts),
        device=finding.device,
        kind=finding.kind,
        evidence=finding.evidence,
        action=finding.suggested_action,
    )


def _reason(case: str, sentence: str, numbers: Sequence[int]) -> str:
    rounds = f"round{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
    return f"{case} {rounds}: {sentence}"


def drain_rows(record: RunRecord) -> list[tuple[str, str]]:
    """(host, reason) of the drain list for a table; a further reason of a host leaves its name empty."""
    return [
        (each.host if index == 0 else "", reason) for each in record.drain for index, reason in enumerate(each.reasons)
    ]


def not_yet_said(sentences: Sequence[str], rounds: Sequence[RoundRecord]) -> Iterator[str]:
    """The sentences of findings that the benchmark's own sentences do not contain."""
    said = "\n".join(sentences)
    for record in rounds:
        for finding in record.findings:
            if finding.sentence not in said:
                yield f"round {record.round}: {finding.sentence}"
