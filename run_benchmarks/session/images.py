"""Has the runtime bring the images of a run to its hosts, and records their sources."""

from collections.abc import Mapping

from container.image import LABEL_BASE, ImageIdentity, ImageSpec
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.outages import Patience
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.plan import Plan
from run_benchmarks.plan.resolve import Resolved
from run_benchmarks.results.records import ImageRecord
from run_benchmarks.runtimes.base import Runtime


def provide_images(
    runtime: Runtime,
    plan: Plan,
    resolved: Resolved,
    hosts: Mapping[str, Host],
    reports: Mapping[str, HostReport],
    patience: Patience,
    settled: Mapping[str, ImageIdentity],
) -> dict[str, ImageIdentity]:
    """Provide the plan's images (see Runtime.provide_images); the reports then hold each host's id.

    Returns:
        the images by tag.

    Raises:
        TaskError: an image cannot be provided, or hosts have different ones under a name that the user gave.
        HostError: a host was out of reach for longer than it may be.
        InterruptedRunError: a signal arrived.
    """
    found = runtime.provide_images(plan, _specs(resolved), hosts, settled, patience)
    for tag, there in found.items():
        for name, image in there.items():
            reports[name].images[tag] = image.id
    return {tag: next(iter(there.values())) for tag, there in found.items()}


def _specs(resolved: Resolved) -> dict[str, ImageSpec]:
    return {case.image.tag: case.image for case in resolved.cases if case.image is not None}


def image_records(
    resolved: Resolved, images: Mapping[str, ImageIdentity], reports: Mapping[str, HostReport]
) -> list[ImageRecord]:
    """The sources of a run's images, and their id on each host."""
    specs = _specs(resolved)
    records = []
    for tag, image in images.items():
        spec = specs.get(tag)
        ids = {name: report.images.get(tag) for name, report in reports.items()}
        records.append(
            ImageRecord(
                tag=tag,
                ids={name: image_id for name, image_id in ids.items() if image_id is not None},
                recipe=None if spec is None else spec.content_hash,
                base_image=None if spec is None else spec.base_image,
                base_id=image.label(LABEL_BASE),
                files={} if spec is None else {file.name: file.sha256 for file in spec.files},
            )
        )
    return records
