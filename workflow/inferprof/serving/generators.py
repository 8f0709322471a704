"""Generative models that answer requests: in static batches by transformers' `generate`, or by continuous batching.

Static batches are padded prompts behind our queue. Continuous batching is the manager behind `generate_batch`: our
client adds each request when it is due, and what comes is told by the manager's timestamps, whose clock is ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from inferprof import loading
from inferprof.backends.torch import DTYPES
from inferprof.documents.serving import ServingPolicy
from inferprof.errors import CaseFailed, UserError
from inferprof.machine.hardware import Gpu
from inferprof.queueing.policy import ANSWERING, ANSWERING_OPTIONS, Times, policy_of
from inferprof.queueing.simulate import Served
from inferprof.queueing.tokens import Lengths
from inferprof.run_request import RunRequest
from inferprof.serving import load
from inferprof.serving.bench import now
from inferprof.units import NS_PER_S

POOL: Final = 512
"""Requests of different lengths, which come again and again."""
POLL_S: Final = 0.05
"""How long an answer is waited for before it is looked whether the run is over."""
PAGE: Final = 256
"""Tokens of a page of the cache, by default."""
MOST_TOKENS: Final = 8192
"""Of a step, as transformers has it by default: the mask of all of them is kept."""
ROOM: Final = 1.5
"""Of what all requests need at once: the scheduler keeps some of the cache free."""
Came = list[Times]
"""Of each request when its tokens came, ns of time.perf_counter_ns."""


class Model:
    """A causal language model of transformers, and prompts for it."""

    def __init__(self, model: Any, asked: ServingPolicy, seed: int) -> None:
        assert asked.prompts is not None and asked.new_tokens is not None
        self.model, self.asked = model, asked
        self.lengths = Lengths.drawn(asked.prompts, asked.new_tokens, POOL, seed)
        rng = np.random.default_rng(seed)
        self._ids = rng.integers(1, model.config.vocab_size, (POOL, asked.prompts[1])).tolist()

    def prompt(self, number: int) -> list[int]:
        """The tokens of a request's prompt."""
        ids: list[int] = self._ids[number % POOL]
        return ids[: self.lengths.prompts[number % POOL]]

    def new(self, number: int) -> int:
        """How many tokens answer it."""
        return int(self.lengths.answers[number % POOL])

    def of(self, count: int) -> Lengths:
        """The lengths of so many requests."""
        places = np.arange(count) % POOL
        return Lengths(self.lengths.prompts[places], self.lengths.answers[places])

    def probes(self, largest: int) -> Iterator[list[list[int]]]:
        """Prompts of bursts of 1, 2, 4 … requests that are there at once, whose steps are timed."""
        for size in (*(1 << power for power in range((largest - 1).bit_length())), largest):
            most = self.asked.budget // size if self.asked.budget else None  # so that one step reads them all
            yield [self.prompt(number)[:most] for number in range(size)]


class Static:
    """`generate` on batches. Tokens come as the batch makes them; an answer is done with its batch."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.came: dict[int, Times] = {}

    def serve(self, numbers: Sequence[int]) -> None:
        """Answer requests together."""
        new = [self.model.new(number) for number in numbers]
        came = self._generate([self.model.prompt(number) for number in numbers], max(new))
        self.came.update({number: came[:count] for number, count in zip(numbers, new, strict=True)})

    def sent(self, due: Times, core: int | None = None) -> load.Run:
        """A run on a schedule. core: the client's CPU."""
        self.came.clear()
        run = load.run(self.serve, policy_of(self.model.asked), due, core)
        own = [self.came[number] - run.begin for number in range(run.served.arrived.size)]
        return load.Run(run.served, run.sent, run.asked, run.begin, own)

    def burst(self, prompts: Sequence[list[int]], new: int) -> Came:
        """When the tokens of requests came that were there at once; the first moment is their start."""
        begin = now()
        came = self._generate(prompts, new)
        return [np.concatenate([[begin], came])] * len(prompts)

    def tokens_of(self, prompts: Sequence[list[int]]) -> int:
        """Of the step that reads them."""
        return len(prompts) * max(map(len, prompts))

    def _generate(self, prompts: Sequence[list[int]], new: int) -> Times:
        import torch

        longest, model = max(map(len, prompts)), self.model.model
        ids, mask = (
            torch.tensor([[0] * (longest - len(each)) + fill(each) for each in prompts], device=model.device)
            for fill in (list, lambda each: [1] * len(each))
        )
        came: list[int] = []

        def note(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            scores[0, 0].item()  # waits for the device
            came.append(now())
            return scores

        model.generate(ids, attention_mask=mask, generation_config=_config(new), logits_processor=[note])
        return np.array(came, dtype=float)


class Continuous:
    """The manager of continuous batching, whose thread makes the steps."""

    def __init__(self, model: Model, manager: Any) -> None:
        self.model, self.manager = model, manager
        self._runs = 0

    def sent(self, due: Times, core: int | None = None) -> load.Run:
        """A run on a schedule. core: the client's CPU."""
        names = self._names(due.size)

        def add(number: int, _: float) -> None:
            self._ask(self.model.prompt(number), self.model.new(number), names[number])

        with load.Client(due, add, lambda: None, core) as client:
            outputs = self._finished(names, lambda: client.clock() < client.end)
        count = next((place for place, name in enumerate(names) if name not in outputs), due.size)
        for name in names:
            if name not in outputs:
                self.manager.cancel_request(name)
        answers = [outputs[name] for name in names[:count]]
        own = [NS_PER_S * np.array(answer.timestamps) - client.begin for answer in answers]
        started = NS_PER_S * np.array([answer.lifespan[0] for answer in answers]) - client.begin
        done = np.array([moments[-1] for moments in own])
        served = Served(due[:count], started, done, np.ones(count, dtype=np.int64))
        return load.Run(served, client.sent[:count], due.size, client.begin, own)

    def burst(self, prompts: Sequence[list[int]], new: int) -> Came:
        """When the tokens of requests came that were there at once; the first moment is their start."""
        names = self._names(len(prompts))
        begin = float(now())
        for prompt, name in zip(prompts, names, strict=True):
            self._ask(prompt, new, name)
        outputs = self._finished(names, lambda: True)
        return [np.array([begin, *(NS_PER_S * moment for moment in outputs[name].timestamps)]) for name in names]

    def tokens_of(self, prompts: Sequence[list[int]]) -> int:
        """Of the step that reads them."""
        return sum(map(len, prompts))

    def _names(self, count: int) -> list[str]:
        """Of requests: what is left of another run has others."""
        self._runs += 1
        return [f"{self._runs}.{number}" for number in range(count)]

    def _ask(self, prompt: list[int], new: int, name: str) -> None:
        if self.manager.is_running():
            self.manager.add_request(prompt, request_id=name, max_new_tokens=new, record_timestamps=True)

    def _finished(self, names: Sequence[str], goes_on: Callable[[], bool]) -> dict[str, Any]:
        wanted, outputs = set(names), dict[str, Any]()
        while len(outputs) < len(names) and goes_on():
            output = self.manager.get_result(timeout=POLL_S)
            if output is None and not self.manager.is_running():
                raise CaseFailed("the thread of continuous batching ended")
            if output is not None and output.request_id in wanted and output.is_finished():
                if output.error:
                    raise CaseFailed(f"continuous batching: {output.error}")
                outputs[output.request_id] = output
        return outputs


Generator = Static | Continuous


@contextlib.contextmanager
def opened(requests: Sequence[RunRequest], asked: ServingPolicy, gpu: Gpu | None) -> Iterator[Generator]:
    """A server of the model of a case. Raises UserError for what it does not have."""
    import torch

    request = requests[-1]
    foreign = sorted(set(request.variant.options) - ANSWERING_OPTIONS)
    if foreign or request.case.backend != ANSWERING:
        raise UserError(
            f"a model with a KV cache is put under load by {ANSWERING}, with no options of a variant but "
            f"{' and '.join(sorted(ANSWERING_OPTIONS))}; given: {', '.join([request.case.backend, *foreign])}"
        )
    if asked.loadgen:
        raise UserError("LoadGen sends no prompts: leave out loadgen for a model with a KV cache")
    before = torch.get_num_threads()
    torch.set_num_threads(loading.open_request(request, loading.device_of([gpu] if gpu else [])).threads)
    try:
        model = Model(_loaded(request, gpu), asked, request.seed)
        if asked.policy != "continuous":
            with torch.inference_mode():
                yield Static(model)
        else:  # its thread is in no inference mode in transformers 5.17, and what is made here must be its own
            with _managed(model, graphs=request.variant.flag("cuda_graph")) as manager:
                yield Continuous(model, manager)
    finally:
        torch.set_num_threads(before)


def _loaded(request: RunRequest, gpu: Gpu | None) -> Any:
    import torch
    import transformers

    from inferprof.model import torch_source

    transformers.logging.set_verbosity_error()
    module = torch_source.load(request.spec, "eager").module  # eager: with transformers' own attention and cache
    return module.model.to(getattr(torch, DTYPES[request.case.precision])).to("cuda" if gpu else "cpu")


@contextlib.contextmanager
def _managed(model: Model, *, graphs: bool) -> Iterator[Any]:
    import transformers

    most, (_, prompt), new = model.asked.max_batch, model.asked.prompts or (0, 0), int(model.lengths.answers.max())
    pages = -(-(prompt + new) // PAGE)
    config = transformers.ContinuousBatchingConfig(
        max_batch_tokens=model.asked.budget or min(most * prompt, MOST_TOKENS),
        max_requests_per_batch=most,
        num_blocks=int(ROOM * most * pages) + 1,
        allow_block_sharing=False,
        use_cuda_graph=graphs or None,
    )
    if hasattr(config, "auto_switch_to_flash"):  # transformers 5.17 has no such thing
        config.auto_switch_to_flash = False
    with model.model.continuous_batching_context_manager(
        generation_config=_config(new),
        continuous_batching_config=config,
        block=True,
        timeout=60,
    ) as manager:
        yield manager


def _config(new: int) -> Any:
    import transformers

    return transformers.GenerationConfig(
        max_new_tokens=int(new), min_new_tokens=int(new), do_sample=False, eos_token_id=-1, pad_token_id=0
    )
