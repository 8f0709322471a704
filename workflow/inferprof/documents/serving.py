"""Documents about a case under load: what a batching policy came to, beside what was predicted of it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from inferprof.documents.base import (
    Count,
    Document,
    Measured,
    Nanoseconds,
    NotNegative,
    Number,
    OfCase,
    Outcome,
    Positive,
)
from inferprof.documents.telemetry import Energy

PolicyKind = Literal["none", "dynamic", "continuous"]
Scenario = Literal["Server", "Offline", "SingleStream", "MultiStream"]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$(?!\n)")]
Batch = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,5}$(?!\n)")]
"""A batch size as a key of JSON."""
ROUNDING = 1e-9
Span = tuple[Annotated[int, Meta(ge=1, le=1 << 20)], Annotated[int, Meta(ge=1, le=1 << 20)]]
LEAST_NEW = 2
NEEDS_PROMPTS = "a model with a KV cache needs prompts and new_tokens"
NO_PROMPTS = "prompts and new_tokens are of models with a KV cache: leave them out, or name others under models"
LEAST_GAMMA = 1e-3
"""Below it nearly all requests of a run come at one moment."""
ServiceTimes = Annotated[list[Nanoseconds], Meta(min_length=1)]
Arrivals = Annotated[
    str,
    Meta(
        pattern=r"^(poisson|constant|gamma:\d+(\.\d+)?|trace:.+)$(?!\n)",
        description="poisson, constant, gamma:SHAPE, or trace:FILE with a moment in seconds on each line",
    ),
]


class ServingPolicy(Document, forbid_unknown_fields=True):
    """How requests of one item are served, what is sent, and what must be met: an entry of `serving:`."""

    name: Name
    policy: PolicyKind
    slo_ms: Annotated[Positive, Meta(description="the latency objective; of a generative model for the first token")]
    max_batch: Annotated[int, Meta(ge=1, le=65536)] = 1
    max_delay_ms: Annotated[NotNegative, Meta(description="how long the first of a batch waits for more")] = 0
    arrivals: Arrivals = "poisson"
    percentile: Annotated[float, Meta(gt=0, lt=100, description="of latency, that is to meet the objective")] = 99.0
    loads: Annotated[
        tuple[Positive, ...], Meta(description="rates that are measured, as shares of the policy's capacity")
    ] = (0.5, 0.8)
    seconds: Annotated[Positive, Meta(description="of each run; longer where the percentile needs more requests")] = (
        10
    )
    search: Annotated[bool, Meta(description="whether the highest rate that meets the objective is looked for")] = (
        True
    )
    loadgen: Annotated[tuple[Scenario, ...], Meta(description="scenarios that MLPerf LoadGen measures too")] = ()
    client_core: Annotated[bool, Meta(description="keep a CPU for the client; the session has the rest")] = False
    models: Annotated[tuple[str, ...], Meta(description="the models that it is for; all unless given")] = ()
    prompts: Annotated[Span | None, Meta(description="tokens of a prompt, least and most: of a generative model")] = (
        None
    )
    new_tokens: Annotated[Span | None, Meta(description="tokens of an answer, least and most")] = None
    tpot_ms: Annotated[Positive | None, Meta(description="the objective for each further token of an answer")] = None
    budget: Annotated[Count | None, Meta(description="tokens of a step of policy continuous; 0: as fit")] = None

    def __post_init__(self) -> None:
        if self.policy == "none" and (self.max_batch > 1 or self.max_delay_ms):
            raise ValueError("policy none has neither max_batch nor max_delay_ms: it serves one request at a time")
        self._check_generation()
        kind, _, shape = self.arrivals.partition(":")
        if kind == "gamma" and not LEAST_GAMMA <= float(shape) <= 1 / LEAST_GAMMA:
            raise ValueError(
                f"arrivals gamma:{shape}: allowed are shapes from {LEAST_GAMMA:g} to {1 / LEAST_GAMMA:g}"
            )

    @property
    def generates(self) -> bool:
        """Whether requests have prompts and answers, token by token."""
        return self.prompts is not None

    @property
    def objective(self) -> str:
        """In words: `p99 ≤ 60 ms`."""
        percent = f"p{self.percentile:g}"
        if not self.generates:
            return f"{percent} ≤ {self.slo_ms:g} ms"
        tpot = f", TPOT ≤ {self.tpot_ms:g} ms" if self.tpot_ms else ""
        return f"{percent}: TTFT ≤ {self.slo_ms:g} ms{tpot}"

    def _check_generation(self) -> None:
        if self.policy == "continuous" and self.max_delay_ms:
            raise ValueError("policy continuous waits for nothing: leave out max_delay_ms")
        if (self.prompts is None) != (self.new_tokens is None):
            raise ValueError("prompts and new_tokens go together: a generative model needs both")
        if self.prompts is None or self.new_tokens is None:
            if self.policy == "continuous" or self.tpot_ms or self.budget is not None:
                raise ValueError(
                    "policy continuous, tpot_ms and budget are of a generative model: give prompts and new_tokens"
                )
            return
        for name, (least, most) in (("prompts", self.prompts), ("new_tokens", self.new_tokens)):
            if least > most:
                raise ValueError(f"{name}: {least} to {most}: the least comes first")
        if self.new_tokens[0] < LEAST_NEW:
            raise ValueError(f"new_tokens: at least {LEAST_NEW}: one token has no time per further token")
        if self.budget is not None and (self.policy != "continuous" or 0 < self.budget < self.max_batch):
            raise ValueError(f"budget: of policy continuous, and at least its max_batch of {self.max_batch} tokens")


class Quantile(Document):
    """A mean or percentile of latency, ns, with its 95 % interval where the run was long enough for one."""

    value_ns: Nanoseconds
    low_ns: NotNegative | None = None
    high_ns: NotNegative | None = None

    def __post_init__(self) -> None:
        low, high = self.low_ns or 0, self.value_ns if self.high_ns is None else self.high_ns
        if not low * (1 - ROUNDING) <= self.value_ns <= high * (1 + ROUNDING):
            raise ValueError(f"{self.value_ns:g} ns does not lie in its interval, {low:g} to {high:g}")


class Predicted(Document):
    """What theory or simulation says of a rate: `mean`, `p50`, `p99` → ns."""

    latency: dict[str, NotNegative]
    utilization: NotNegative
    mean_batch: Positive
    ttft: dict[str, NotNegative] = {}
    tpot: dict[str, NotNegative] = {}
    """Of a generative model, as in Tokens."""
    intervals: dict[str, tuple[NotNegative, NotNegative]] = {}
    """Of `latency`: the least and the most of simulated runs as long as this one."""


class Gap(Document):
    """What lies between a prediction and the measurement of one number, ns: they add up to the difference."""

    service: Number
    """Services took longer in the run than in the rehearsal."""
    client: Number
    """Batches started later than the policy has it, by more than in the rehearsal: the client was late, or the worker
    woke up late."""
    order: Number
    """The rest: slow services follow each other."""
    arrivals: Number | None = None
    """The schedule that was sent, in place of a load that lasts for ever; None where theory does not know the
    arrivals."""

    @property
    def largest(self) -> str:
        """The part with the largest share."""
        parts = {name: abs(getattr(self, name) or 0) for name in self.__struct_fields__}
        return max(parts, key=lambda name: parts[name])


class Tokens(Document):
    """What the requests of a generative model saw at a rate, by the definitions of docs/generation.md."""

    ttft: dict[str, Quantile]
    """`mean`, `p50`, … → from the moment at which a request was due to its first token."""
    tpot: dict[str, Quantile]
    """(Last token - first token) / (tokens - 1) of each request."""
    itl: dict[str, Quantile]
    """From one token of a request to its next."""
    per_s: NotNegative
    """Tokens per second of all requests."""
    good_per_s: NotNegative
    """Requests per second that met both objectives: one meaning of goodput. The other is the highest rate."""
    good_share: NotNegative
    """Of the requests."""
    steps: Count
    per_step: NotNegative
    """New tokens of a step."""


class Load(Document):
    """A run at one rate. Where `refused` says why, it has no numbers, or none that may be used."""

    rate: Positive
    """Requests per second."""
    share: Positive
    """Of the policy's capacity."""
    refused: str | None = None
    requests: Count = 0
    seconds: NotNegative = 0
    latency: dict[str, Quantile] = {}
    """`mean`, `p50`, `p99` → from the moment at which a request was due, whether or not the client was on time."""
    queue_ns: NotNegative | None = None
    service_ns: NotNegative | None = None
    """Means over the requests: until their batch started, and from then on."""
    utilization: NotNegative | None = None
    batches: dict[Batch, Count] = {}
    """Size → how many were formed."""
    lag_ns: NotNegative | None = None
    """The 99th percentile of how late the client sent."""
    drift: Positive | None = None
    """Service times over those of the curve for the same batches: 1.1 where the machine became a tenth slower."""
    late_ns: NotNegative | None = None
    """The mean of how much later than the policy has it a batch started."""
    correlation: Annotated[float, Meta(ge=-1, le=1)] | None = None
    independent: NotNegative | None = None
    """Of service times over the curve's: the autocorrelation at lag 1, and how many batches count as independent."""
    energy: Energy | None = None
    """Of a request: `j_per_inference`."""
    tokens: Tokens | None = None
    offline: Predicted | None = None
    """By theory, from the curve of batches that follow each other with no client beside."""
    predicted: Predicted | None = None
    """By theory, from the curve of the rehearsal, whose parts take turns with those of the run."""
    seen: Predicted | None = None
    """By simulation of the schedule with the service times of the run itself: what is left is their order."""
    gaps: dict[str, Gap] = {}
    """`mean`, `p99` → what lies between `predicted` and `latency`."""
    advised_delay_ns: NotNegative | None = None
    advised_ns: NotNegative | None = None
    """The delay with the least predicted percentile at this rate, and that percentile."""
    replayed: Predicted | None = None
    """By simulation of this very schedule: what is left of the difference is of the service times."""


class Probe(Document):
    """A run of the search."""

    rate: Positive
    meets: bool
    latency: Quantile | None = None
    refused: str | None = None
    level: Number | None = None
    """The logarithm of its service times over the curve's."""
    ratio: Positive | None = None
    """Its percentile over that of a simulation of the same schedule with services as slow."""


class Highest(Measured):
    """The highest rate that meets the objective. `low` to `high`: where a search that is made again lands; it holds
    the machine's speeds during this one."""

    NEEDS: ClassVar[tuple[str, ...]] = ("rate",)

    rate: Positive | None = None
    low: Positive | None = None
    high: Positive | None = None
    change: NotNegative | None = None
    """Of the machine's speed: the slowest run's service times over the quickest one's, less 1."""
    predicted: NotNegative | None = None
    ended: str = ""
    probes: list[Probe] = []

    @property
    def none_meets(self) -> bool:
        """Whether no rate met the objective though the run at the least one could tell."""
        if any(probe.meets for probe in self.probes):
            return False
        least = min(self.probes, key=lambda probe: probe.rate, default=None)
        return bool(self.not_measured and least and (not least.refused or "keep up" in least.refused))


class LoadGenRun(Measured, kw_only=True):
    """A scenario of MLPerf LoadGen, and what our clock saw of the same run."""

    NEEDS: ClassVar[tuple[str, ...]] = ("summary",)

    scenario: Scenario
    summary: dict[str, str] | None = None
    """Lines of its summary, by their names."""
    own: dict[str, Quantile] = {}
    requests: Count = 0
    per_second: NotNegative | None = None


class Serving(Outcome):
    """results/{machine}/serving/{policy}/{case}.json: a case of batches up to its own, under a policy and load."""

    NEEDS: ClassVar[tuple[str, ...]] = ("case", "policy", "curve", "capacity")

    case: OfCase | None = None
    machine: str | None = None
    policy: ServingPolicy | None = None
    curve: dict[Batch, ServiceTimes] | None = None
    """Batch → equally likely service times, measured in the same process between the runs; of a generative model:
    tokens of a step → times of a step."""
    after_idle: dict[Batch, ServiceTimes] = {}
    """The same of batches that the server had waited for."""
    capacity: Positive | None = None
    """Requests per second that full batches carry."""
    loads: list[Load] = []
    highest: Highest | None = None
    loadgen: list[LoadGenRun] = []

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.status == "ok" and self.curve is not None and self.policy is not None:
            largest = max(map(int, self.curve), default=0)
            if largest < self.policy.max_batch:
                raise ValueError(f"its curve ends at a batch of {largest}, and max_batch is {self.policy.max_batch}")
