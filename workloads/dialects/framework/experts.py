"""Describes a mixture-of-experts layer: router, dispatch over the ranks that share the experts, experts, combination.

Dispatchers are Megatron-core's allgather (every rank sees every token of its tp x ep group), alltoall (tokens travel to
their experts and back) and deepep (once to each rank). Who gets how many tokens is the routing's to say.
"""

from functools import cache
from math import comb

from workloads.dialects.framework import quantised
from workloads.dialects.framework.kernels import Kernels
from workloads.dialects.framework.layers import Mlp, Parameter, activation, norm, ready, use
from workloads.dialects.framework.placement import RankPlacement
from workloads.dialects.framework.tensor import TensorParallel
from workloads.job import refusals
from workloads.job.parameters import TRAINING, WorkloadArgs
from workloads.job.routing import Routing, routing
from workloads.rows.calls import BFLOAT16, BOOL, FLOAT32, INT64, SIZES, Call, Event, Ready, Use
from workloads.rows.ops import CommType
from workloads.rows.ranks import Ranks

WEIGHT = SIZES[BFLOAT16]
"""Bytes of a token's routing weight for one expert."""

_routing = cache(routing)


def routed(args: WorkloadArgs, place: RankPlacement) -> Routing:
    """The routing of a job's micro-batch.

    Raises:
        ValueError: the routing does not fit the job.
    """
    tokens = args.seq_length * args.micro_batch // (place.tp if args.enable_sequence_parallel else 1)
    return _routing(
        args.routing, tokens=tokens, topk=args.moe_router_topk, experts=args.num_experts, ep=place.ep, etp=place.etp
    )


class MoeMlp:
    """The experts of a layer in the place of its MLP."""

    def __init__(self, args: WorkloadArgs, place: RankPlacement, tensor: TensorParallel, layer: str) -> None:
        self.args = args
        self.place = place
        self.norm = f"{layer}.pre_mlp_layernorm"
        self.name = f"{layer}.mlp"
        self.router = f"{self.name}.router"
        self.width = args.expert_size // place.etp
        self.local = args.num_experts // place.ep
        self.tokens = tensor.tokens // (place.tp if args.enable_sequence_parallel else 1)
        self.balance = args.moe_aux_loss and place.tp * place.cp > 1 and args.phase == TRAINING
        self.same_samples = place.tensor_context
        shared = args.moe_shared_expert_size
        self.shared = Mlp(args, tensor, f"{self.name}.shared_experts", "", shared) if shared else None
        self.dispatch: Dispatch = DISPATCHES[args.moe_token_dispatcher](
            args, place, self.name, self.tokens, tensor.kernels
        )
        self.tensor, self.kernels = tensor, tensor.kernels
        self.gates = 2 if args.swiglu else 1
        self.arrived = self._arrived() if self.kernels.wanted else (0,) * self.local

    def _arrived(self) -> tuple[int, ...]:
        """Tokens of each expert of this rank."""
        rank = self.place.offset % len(self.place.tensor_expert)
        return routed(self.args, self.place).tokens_per_expert(rank)

    def parameters(self) -> list[Parameter]:
        args = self.args
        found = norm(self.norm, args.hidden_size, args)
        found.append(Parameter(f"{self.router}.weight", args.num_experts * args.hidden_size, reduced=True))
        if args.add_bias_linear:
            found.append(Parameter(f"{self.router}.bias", args.num_experts, reduced=True))
        gated = self.width * (2 if args.swiglu else 1)
        apart = self.place.ep > 1
        for expert in range(self.local):
            name = self._expert(expert)
            found.append(Parameter(f"{name}.linear_fc1.weight", args.hidden_size * gated, expert=apart))
            if args.add_bias_linear:
                found.append(Parameter(f"{name}.linear_fc1.bias", gated, expert=apart))
            found.append(Parameter(f"{name}.linear_fc2.weight", args.hidden_size * self.width, expert=apart))
            if args.add_bias_linear:
                found.append(Parameter(f"{name}.linear_fc2.bias", args.hidden_size, reduced=True, expert=apart))
        return found + (self.shared.parameters() if self.shared else [])

    def forward(self, phase: str) -> list[Event]:
        args, kernels = self.args, self.kernels
        events: list[Event] = [*use(self.norm, args), *self.tensor.norm(phase, self.norm)]
        if self.shared:
            events += self.shared.forward(phase)
        events.append(Use(self._routers()))
        events += kernels.product(phase, self.router, args.hidden_size, args.num_experts, self.tokens)
        events += kernels.moving("routing", phase, self.router, args.num_experts, self.tokens)
        # The auxiliary loss is skipped where no gradient is wanted: in a pass that is run again.
        if self.balance and not (phase == "forward" and self.args.activation_recompute == "full"):
            size = SIZES[INT64] * self.args.num_experts
            events.append(Call(CommType.all_reduce, "tp_cp", self.same_samples, INT64, size, phase, self.router))
        events += self.dispatch.out(phase)
        if args.moe_grouped_gemm:
            events += [Use(self._weights(expert)) for expert in range(self.local)]
            events += self._products(phase, f"{self.name}.experts", sum(self.arrived), grouped=True)
        else:
            for expert, tokens in enumerate(self.arrived):
                events.append(Use(self._weights(expert)))
                events += self._products(phase, self._expert(expert), tokens)
            events += self._joined(phase)
        events += self.dispatch.home(phase)
        return events + (self.tensor.residual(phase, self.name) if self.shared else [])

    def backward(self) -> list[Event]:
        args, kernels, hidden, count = self.args, self.kernels, self.args.hidden_size, self.args.num_experts
        events: list[Event] = [*self.dispatch.home_back()]
        if args.moe_grouped_gemm:
            events += self._gradients(f"{self.name}.experts", sum(self.arrived), grouped=True)
            events += [Ready(self._weights(expert)[::-1]) for expert in reversed(range(self.local))]
        else:
            for expert in reversed(range(self.local)):
                events += self._gradients(self._expert(expert), self.arrived[expert])
                events.append(Ready(self._weights(expert)[::-1]))
            events += self._joined("backward")
        events += self.dispatch.out_back()
        events += kernels.moving("routing_backward", "backward", self.router, count, self.tokens)
        events += kernels.input_gradient(self.router, hidden, count, self.tokens)
        events += kernels.weight_gradient(self.router, hidden, count, self.tokens)
        # The tokens went to the router, to the experts and to those that see all.
        events += self.tensor.residual("backward", self.router)
        events.append(Ready(self._routers()))
        if self.shared:
            events += self.shared.backward()
        return [*events, *self.tensor.norm_back(self.norm), *ready(self.norm, self.args)]

    def _joined(self, phase: str) -> list[Call]:
        """The results of experts one after the other, put together; a grouped product writes it in its place."""
        if self.local == 1:
            return []
        tokens = sum(self.arrived)
        return self.kernels.moving("permute", phase, f"{self.name}.experts", self.args.hidden_size, tokens)

    def _products(self, phase: str, name: str, tokens: int, *, grouped: bool = False) -> list[Call]:
        """One expert, or all at once, forward. tokens: that they get."""
        kernels, hidden, width = self.kernels, self.args.hidden_size, self.width
        inward, outward = (hidden, width * self.gates), (width, hidden)
        act = kernels.moving(activation(self.args), phase, name, width, tokens)
        taken = [quantised.operand(kernels, phase, name, (tokens, wide)) for wide in (hidden, width)]
        if grouped:
            each = max(1, tokens // self.local)
            first, second = (
                kernels.grouped("experts", phase, name, self.local, *sizes, each) for sizes in (inward, outward)
            )
        else:
            first = kernels.product(phase, f"{name}.linear_fc1", *inward, tokens)
            second = kernels.product(phase, f"{name}.linear_fc2", *outward, tokens)
        return [*taken[0], *first, *act, *taken[1], *second]

    def _gradients(self, name: str, tokens: int, *, grouped: bool = False) -> list[Call]:
        """The same backward."""
        kernels, calls = self.kernels, list[Call]()
        for part, sizes in (("fc2", (self.width, self.args.hidden_size)),
                            ("fc1", (self.args.hidden_size, self.width * self.gates))):  # fmt: skip
            calls += quantised.operand(kernels, "backward", name, (tokens, sizes[1]))
            if grouped:
                each = max(1, tokens // self.local)
                for op in ("experts_dgrad", "experts_wgrad"):
                    calls += kernels.grouped(op, "backward", name, self.local, *sizes, each)
            else:
                calls += kernels.input_gradient(f"{name}.linear_{part}", *sizes, tokens)
                calls += kernels.weight_gradient(f"{name}.linear_{part}", *sizes, tokens)
            if part == "fc2":
                act = f"{activation(self.args)}_backward"
                calls += kernels.moving(act, "backward", name, self.width, tokens)
        return calls

    def _routers(self) -> tuple[str, ...]:
        return f"{self.router}.weight", f"{self.router}.bias"

    def _expert(self, number: int) -> str:
        return f"{self.name}.experts.local_experts.{number}"

    def _weights(self, number: int) -> tuple[str, ...]:
        name = self._expert(number)
        return tuple(f"{name}.linear_{each}.{kind}" for each in ("fc1", "fc2") for kind in ("weight", "bias"))


class AllGatherDispatch:
    """Every rank of the tp x ep group gets the tokens, weights and choices of all; the results are summed back."""

    def __init__(self, args: WorkloadArgs, place: RankPlacement, module: str, tokens: int, kernels: Kernels) -> None:
        self.module = module
        self.ranks = place.tensor_expert
        self.kernels, self.hidden = kernels, args.hidden_size
        rank = place.offset % len(place.tensor_expert)
        self.copies = sum(routed(args, place).tokens_per_expert(rank)) if kernels.wanted else 0
        self.alone = place.etp * place.ep == 1
        everyone = tokens * len(self.ranks)
        self.choices = everyone * args.num_experts
        self.activations = everyone * args.hidden_size * SIZES[BFLOAT16]

    def out(self, phase: str) -> list[Call]:
        gather = CommType.all_gather_into_tensor
        calls = self._calls(phase, (gather, BOOL, self.choices), (gather, BFLOAT16, self.choices * WEIGHT),
                            (gather, BFLOAT16, self.activations))  # fmt: skip
        return [*calls, *self._permute(phase)]

    def home(self, phase: str) -> list[Call]:
        summed = self._calls(phase, (CommType.reduce_scatter_tensor, BFLOAT16, self.activations))
        return [*self._permute(phase), *summed]

    def home_back(self) -> list[Call]:
        gathered = self._calls("backward", (CommType.all_gather_into_tensor, BFLOAT16, self.activations))
        return [*gathered, *self._permute("backward")]

    def out_back(self) -> list[Call]:
        scatter = CommType.reduce_scatter_tensor
        summed = self._calls(
            "backward", (scatter, BFLOAT16, self.activations), (scatter, BFLOAT16, self.choices * WEIGHT)
        )
        return [*self._permute("backward"), *summed]

    def _permute(self, phase: str) -> list[Call]:
        return self.kernels.moving("permute", phase, self.module, self.hidden, self.copies)

    def _calls(self, phase: str, *calls: tuple[CommType, str, int]) -> list[Call]:
        if self.alone:
            return []
        return [Call(kind, "tp_ep", self.ranks, dtype, size, phase, self.module) for kind, dtype, size in calls]


class AllToAllDispatch:
    """Tokens and weights go to the experts' ranks, whose tensor ranks share what they got; the results go back.

    How many come is exchanged first, 8 bytes an expert and rank.
    """

    def __init__(self, args: WorkloadArgs, place: RankPlacement, module: str, tokens: int, kernels: Kernels) -> None:
        route = routed(args, place)
        self.kernels, self.hidden = kernels, args.hidden_size
        self.copies = tokens * args.moe_router_topk
        self.module = module
        self.place = place
        self.token = args.hidden_size * SIZES[BFLOAT16]
        self.counts = SIZES[INT64] * args.num_experts * len(place.tensor_expert)
        rank = place.offset % len(place.tensor_expert)
        self.sent, self.received = route.sent(rank), route.received(rank)
        self.shared = sum(route.received_by_tensor_ranks(rank))
        self.local = args.num_experts // place.ep

    def out(self, phase: str) -> list[Call]:
        calls = []
        if len(self.place.tensor_expert) > 1:
            kind = CommType.all_gather_into_tensor
            calls.append(Call(kind, "tp_ep", self.place.tensor_expert, INT64, self.counts, phase, self.module))
        calls += [*self._permute(phase), *self._away(phase, self.token), *self._away(phase, WEIGHT)]
        calls += [*self._gather(phase, self.token), *self._gather(phase, WEIGHT)]
        return [*calls, *self._sort(phase)]

    def home(self, phase: str) -> list[Call]:
        home = [*self._scatter(phase, self.token), *self._back(phase, self.token)]
        return [*self._sort(phase), *home, *self._permute(phase)]

    def home_back(self) -> list[Call]:
        away = [*self._away("backward", self.token), *self._gather("backward", self.token)]
        return [*self._permute("backward"), *away, *self._sort("backward")]

    def out_back(self) -> list[Call]:
        calls = [*self._sort("backward"), *self._scatter("backward", WEIGHT), *self._scatter("backward", self.token)]
        calls += [*self._back("backward", WEIGHT), *self._back("backward", self.token)]
        return [*calls, *self._permute("backward")]

    def _permute(self, phase: str) -> list[Call]:
        """The copies of a token for its experts, one after the other by expert; or their weighted sum."""
        return self.kernels.moving("permute", phase, self.module, self.hidden, self.copies)

    def _sort(self, phase: str) -> list[Call]:
        """The tokens of each rank by expert, sorted by expert over all ranks, or back."""
        if self.local == 1:
            return []
        return self.kernels.moving("permute", phase, self.module, self.hidden, self.shared)

    def _away(self, phase: str, size: int) -> list[Call]:
        return self._exchange(phase, size, self.sent, self.received)

    def _back(self, phase: str, size: int) -> list[Call]:
        return self._exchange(phase, size, self.received, self.sent)

    def _exchange(self, phase: str, size: int, into: tuple[int, ...], out: tuple[int, ...]) -> list[Call]:
        if self.place.ep == 1:
            return []
        total = sum(into) * size
        sent = received = None
        if len({*into, *out}) > 1:
            sent, received = tuple(size * count for count in into), tuple(size * count for count in out)
        kind = CommType.all_to_all_single
        return [Call(kind, "ep", self.place.expert, BFLOAT16, total, phase, self.module, sent, received)]

    def _gather(self, phase: str, size: int) -> list[Call]:
        return self._among_tensor_ranks(CommType.all_gather, phase, size)

    def _scatter(self, phase: str, size: int) -> list[Call]:
        return self._among_tensor_ranks(CommType.reduce_scatter, phase, size)

    def _among_tensor_ranks(self, kind: CommType, phase: str, size: int) -> list[Call]:
        ranks: Ranks = self.place.expert_tensor
        if len(ranks) == 1:
            return []
        return [Call(kind, "expert_tp", ranks, BFLOAT16, self.shared * size, phase, self.module)]


class DeepEpDispatch:
    """Megatron-core's flex dispatcher with DeepEP: a token goes once to each rank that has one of its experts, with its
    choices and weights, and is copied for them there; results come back summed, one a rank.

    Who has which experts is drawn at random for each token, so that ranks are met as often as by chance.
    """

    def __init__(self, args: WorkloadArgs, place: RankPlacement, module: str, tokens: int, kernels: Kernels) -> None:
        self.module, self.kernels, self.place, self.hidden = module, kernels, place, args.hidden_size
        rank = place.offset % len(place.tensor_expert)
        self.copies = sum(routed(args, place).tokens_per_expert(rank)) if kernels.wanted else 0
        self.met = round(tokens * chance_to_meet(args.num_experts, place.ep, args.moe_router_topk))
        self.token = args.hidden_size * SIZES[BFLOAT16]
        self.weights = args.moe_router_topk * SIZES[FLOAT32]
        self.choices = args.moe_router_topk * SIZES[INT64]

    def out(self, phase: str) -> list[Call]:
        return [*self._sent(phase, self.token + self.choices + self.weights), *self._permute(phase)]

    def home(self, phase: str) -> list[Call]:
        return [*self._permute(phase), *self._sent(phase, self.token)]

    def home_back(self) -> list[Call]:
        return [*self._sent("backward", self.token), *self._permute("backward")]

    def out_back(self) -> list[Call]:
        return [*self._permute("backward"), *self._sent("backward", self.token + self.weights)]

    def _permute(self, phase: str) -> list[Call]:
        return self.kernels.moving("permute", phase, self.module, self.hidden, self.copies)

    def _sent(self, phase: str, size: int) -> list[Call]:
        if self.place.ep == 1:
            return []
        total = self.met * self.place.ep * size
        return [Call(CommType.all_to_all_single, "ep", self.place.expert, BFLOAT16, total, phase, self.module)]


def chance_to_meet(experts: int, ep: int, topk: int) -> float:
    """How likely one of the ep ranks has one of a token's topk different experts."""
    return 1 - comb(experts - experts // ep, topk) / comb(experts, topk)


Dispatch = AllGatherDispatch | AllToAllDispatch | DeepEpDispatch
DISPATCHES: dict[str, type[Dispatch]] = {
    "allgather": AllGatherDispatch,
    "alltoall": AllToAllDispatch,
    refusals.DEEPEP: DeepEpDispatch,
}
