"""Runs one rank of Megatron-core's GPT without gradients: a prompt (prefill) or one token of each sequence (decode).

A step is a forward pass of each micro-batch, as megatron-core 0.16.1 runs them in static batching: over the pipeline by
its functions for inference, the logits of the last token gathered. Sampling is the engine's and is not traced.
"""

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.inference.communication_utils import recv_from_prev_pipeline_rank_, send_to_next_pipeline_rank
from megatron.core.inference.contexts import StaticInferenceContext
from megatron.core.transformer.module import Float16Module

from workloads.job.parameters import DECODE
from workloads.trace.job import TraceJob
from workloads.trace.megatron_model import model_chunk, transformer_config
from workloads.trace.recorder import Recorder


def steps(job: TraceJob, recorder: Recorder) -> None:
    """Run `job.iterations` steps of the job's rank under the recorder."""
    config = transformer_config(job)
    chunk = model_chunk(job, config, 0)
    recorder.watch(chunk)
    model: Any = Float16Module(config, chunk).eval()
    with torch.no_grad():
        for _ in range(job.iterations):
            recorder.next_iteration()
            for number in range(job.num_microbatches):
                _forward(job, recorder, model, chunk, number)


def _forward(job: TraceJob, recorder: Recorder, model: Any, chunk: Any, number: int) -> None:
    shape = job.micro_batch, job.tokens_per_sequence
    context = StaticInferenceContext(job.micro_batch, job.seq_length + 1)
    before = job.seq_length if job.phase == DECODE else 0
    if before:
        context.sequence_len_offset = before
        context.enable_decode_mode()
    tokens = torch.zeros(shape, dtype=torch.int64)
    mask = torch.zeros((1, 1, shape[1], before + shape[1]), dtype=torch.bool)
    with recorder.during("forward"):
        received = None
        if not parallel_state.is_pipeline_first_stage():
            received = torch.empty((*reversed(shape), job.hidden_size), dtype=torch.bfloat16)
            recv_from_prev_pipeline_rank_(received)
        chunk.set_input_tensor(received)
    with recorder.during("forward", number):
        output = model(tokens, tokens, mask, inference_context=context, runtime_gather_output=True)
    with recorder.during("forward"):
        if not parallel_state.is_pipeline_last_stage():
            send_to_next_pipeline_rank(output.to(torch.bfloat16))
