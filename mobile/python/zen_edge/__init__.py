"""Zen Edge: which task a prompt is and which model should answer it, on this machine.

    import asyncio, zen_edge

    async def main():
        async with await zen_edge.Router.load() as router:
            outcome = await router.route("write a python function to reverse a linked list")
            print(outcome.task, outcome.model, outcome.because)

    asyncio.run(main())

The engine is Rust, the same as on phones and in browsers, and so are the bits of its vectors. No prompt leaves the process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import AsyncIterator, Callable, Optional, Union

from . import _bindings
from ._bindings import (
    About,
    Adapter,
    Backend,
    BackgroundPolicy,
    BenchOptions,
    CancelToken,
    Candidate,
    Choice,
    ChooseOptions,
    Confidence,
    DecisionSource,
    Device,
    Embedding,
    Engine as _Engine,
    FileSource,
    Footprint,
    Generated,
    GenerateOptions,
    Generation as _Generation,
    InternalError,
    KvPrecision,
    Level,
    Limits,
    ListenerError,
    LoadOptions,
    LoadStage,
    LogLevel,
    MemorySnapshot,
    Message,
    Outcome,
    PackSource,
    Piece,
    Power,
    Progress,
    Provider,
    Reason,
    Require,
    Reward,
    RouteKind,
    RouteOptions,
    RouterListener,
    Scored,
    SelfTestReport,
    Speed,
    Stats,
    StopReason,
    TaskKind,
    Thermal,
    Timings,
    TrimLevel,
    Typing as _Typing,
    WhyNot,
    ZenEdgeError,
    engine_version,
    footprint,
)

# uniffi's generator for Python writes this check and does not call it: bindings of another build would read nonsense.
_bindings._uniffi_check_api_checksums(_bindings._UniffiLib)

__version__ = engine_version()

Source = Union[None, str, "os.PathLike[str]", PackSource]


def default_pack() -> Path:
    """The folder of the pack that comes with the package: a small backbone with its heads."""
    return Path(__file__).parent / "pack"


def _source(source: Source) -> PackSource:
    if source is None:
        source = default_pack()
    if isinstance(source, (str, os.PathLike)):
        return PackSource.FOLDER(path=os.fspath(source))
    return source


class _Listener(RouterListener):
    def __init__(self, progress: Optional[Callable], log: Optional[Callable]):
        self._progress, self._log = progress, log

    def on_progress(self, progress: Progress) -> None:
        if self._progress:
            self._progress(progress)

    def on_log(self, level: LogLevel, message: str) -> None:
        if self._log:
            self._log(level, message)


class Router:
    """A loaded router. Many tasks may ask it at once: it answers one prompt after the other, each on all of its threads.

    Cancelling a task that waits for an answer ends the work on it.
    """

    def __init__(self, engine: _Engine):
        self._engine = engine

    @classmethod
    async def load(
        cls,
        source: Source = None,
        options: Optional[LoadOptions] = None,
        *,
        on_progress: Optional[Callable[[Progress], None]] = None,
        on_log: Optional[Callable[[LogLevel, str], None]] = None,
        token: Optional[CancelToken] = None,
    ) -> Router:
        """Loads a pack: a folder, a `PackSource`, or what comes with the package.

        The listeners are called on the engine's own thread; what they raise is passed over.
        """
        listener = _Listener(on_progress, on_log) if on_progress or on_log else None
        return cls(await _Engine.load(_source(source), options or LoadOptions(), listener, token))

    @staticmethod
    def footprint(source: Source = None, options: Optional[LoadOptions] = None) -> Footprint:
        """What a router over a pack would take; nothing is loaded for it."""
        return footprint(_source(source), options or LoadOptions())

    @property
    def about(self) -> About:
        """What was loaded."""
        return self._engine.about()

    async def route(
        self, prompt: str, options: Optional[RouteOptions] = None, *, token: Optional[CancelToken] = None
    ) -> Outcome:
        """Decides which model should answer a prompt."""
        return await self._engine.route(prompt, options or RouteOptions(), token)

    async def embed(
        self, prompt: str, *, plain_text: Optional[bool] = None, token: Optional[CancelToken] = None
    ) -> Embedding:
        """The last token's hidden state of a prompt, not normalised."""
        return await self._engine.embed(prompt, plain_text, token)

    def session(self, options: Optional[RouteOptions] = None) -> Session:
        """A text that is being typed."""
        return Session(self._engine.session(), options or RouteOptions())

    async def generate(
        self,
        prompt: Union[str, list[Message]],
        options: Optional[GenerateOptions] = None,
        *,
        token: Optional[CancelToken] = None,
    ) -> Generation:
        """Generates text after a prompt, or the answer to a chat's turns by the model's own template.

        The result is an asynchronous iterator of texts: `async for text in await router.generate(…)`.
        """
        if not isinstance(prompt, str):
            prompt = await self._engine.render(prompt)
        return Generation(await self._engine.generate(prompt, options or GenerateOptions(), token))

    async def choose(
        self,
        prompt: str,
        options: list[str],
        how: Optional[ChooseOptions] = None,
        *,
        token: Optional[CancelToken] = None,
    ) -> list[Choice]:
        """How probable each of `options` is as what follows `prompt`, in their order: probabilities that sum to 1.

        They are compared as whole texts: one that another begins with ("A", "All") is never less probable than it, so end such
        ones alike ("A.", "All.").
        """
        return await self._engine.choose(prompt, options, how or ChooseOptions(), token)

    async def observe(self, outcome: Union[Outcome, str], reward: Union[Reward, float]) -> None:
        """Tells how an answer turned out: a quality from 0 to 1, or a `Reward` with what it cost and took."""
        name = outcome if isinstance(outcome, str) else outcome.id or ""
        if not isinstance(reward, Reward):
            reward = Reward(quality=float(reward))
        await self._engine.observe(name, reward)

    def stats(self) -> Stats:
        """What was done and what is held."""
        return self._engine.stats()

    async def self_test(self, answers: Optional[FileSource] = None) -> SelfTestReport:
        """Whether the engine gives on this machine what it should. `answers` is a pack's `selftest.json`."""
        return await self._engine.self_test(answers)

    async def bench(self, options: Optional[BenchOptions] = None, *, token: Optional[CancelToken] = None) -> str:
        """Measures how fast this machine reads, decides and generates: the JSON of `zen-edge bench --json`."""
        return await self._engine.bench(options or BenchOptions(), token)

    def trim(self, level: TrimLevel = TrimLevel.CACHES) -> None:
        """Gives memory back. What was learned stays, and answers keep their bits."""
        self._engine.trim(level)

    def set_foreground(self, foreground: bool) -> None:
        """Whether the program is seen."""
        self._engine.set_foreground(foreground)

    def set_thermal(self, thermal: Thermal) -> None:
        """How hot the machine is."""
        self._engine.set_thermal(thermal)

    def forget_user(self, user: str) -> bool:
        """Forgets what a user's rewards taught. Whether there was anything."""
        return self._engine.forget_user(user)

    def forget_conversation(self, conversation: str) -> bool:
        """Forgets a conversation's model. Whether there was one."""
        return self._engine.forget_conversation(conversation)

    def learning(self) -> bytes:
        """What was learned, as a file without any text of a prompt."""
        return self._engine.learning()

    async def restore_learning(self, learning: bytes) -> Optional[str]:
        """Takes over such a file. What is wrong with it, where something is: then learning begins anew."""
        return await self._engine.restore_learning(learning)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._engine.is_closed()

    def close(self) -> None:
        """Gives everything back; what is asked afterwards raises `ZenEdgeError.Closed`. Twice is no fault."""
        self._engine.shut_down()

    async def __aenter__(self) -> Router:
        return self

    async def __aexit__(self, *_) -> None:
        self.close()

    def __enter__(self) -> Router:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Session:
    """A text that is being typed: each update pays for what is new since the last one, and ends the work on older ones."""

    def __init__(self, typing: _Typing, options: RouteOptions):
        self._typing, self._options = typing, options

    async def update(self, text: str) -> Outcome:
        """The text as it is now. Its answer is a draft. Raises `ZenEdgeError.Superseded` where a newer text has come."""
        return await self._typing.update(text, self._options)

    def clear(self) -> None:
        """Ends the work on the last text, and forgets it."""
        self._typing.clear()


class Generation:
    """Text that is being generated: an asynchronous iterator of its pieces."""

    def __init__(self, generation: _Generation):
        self._generation = generation

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while (piece := await self._generation.next()) is not None:
            # Half a character, or what may begin a stop text, is held back.
            if piece.text:
                return piece.text
        raise StopAsyncIteration

    def stop(self) -> None:
        """Ends it: there are no more pieces."""
        self._generation.stop()

    async def finish(self) -> Generated:
        """All of the text, its tokens and why it ended."""
        return await self._generation.finish()
