"""BERT in Paddle in containers of its own image, on two hosts with a rank each."""

import json

import pytest

from tests.cluster import images
from tests.cluster.controller import Controller

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1800)]
CASE: dict[str, object] = {
    "model": "bert", "framework": "paddle", "config": "config_CPUx1x2", "nnodes": 2, "nproc": 1
}  # fmt: skip


def test_bert_converges_in_the_image_of_paddle(controller: Controller) -> None:
    lock = images.REPOSITORY / "requirements" / "paddle.lock"
    wheels = images.make_wheelhouse(images.CACHE / "wheelhouse-paddle", requirements=lock)
    controller.configure_test({"BERT": CASE}, WHEELHOUSE=str(wheels))
    answer = controller.finish(controller.start(), within=1500)
    assert answer.exit_code == 0 and answer.folder is not None, answer.output
    (round_file,) = answer.folder.glob("*/round1/round.json")
    found = json.loads(round_file.read_text(encoding="utf-8"))
    assert found["metrics"]["converged"] is True and found["metrics"]["one_training"] is True
    outputs = sorted(answer.folder.glob("*/round1/*/rank*.out.log"))
    assert len(outputs) == 2
    for output in outputs:
        text = output.read_text(encoding="utf-8")
        assert '"framework": "paddle"' in text and '"paddle": "3.3.1"' in text
