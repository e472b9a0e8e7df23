"""``ClusterAwareTrainer``: all ranks step, save and stop together, and resume at the next start."""

from __future__ import annotations

import contextlib
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from slurmkit.config.training import OptimConfig
from slurmkit.errors import CheckpointError, SlurmkitError
from slurmkit.runtime.records import read_json, write_atomic
from slurmkit.runtime.requeue import end_life
from slurmkit.runtime.signals import Stop, catch_signals
from trainer import state
from trainer.build import build_model, build_optimizer, check_identity, deterministic, identity_of
from trainer.checkpoint import CheckpointStore
from trainer.control import Report, shared
from trainer.data import Feed, SampleOrder, open_samples, order_checksum, shares
from trainer.distributed import Ranks, joined, set_threads
from trainer.events import RESULT, EventLog, MetricLog, chain, log_samples, tell
from trainer.resume import find_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmkit.config.training import Settings
    from slurmkit.runtime.jobenv import JobEnv
    from slurmkit.runtime.signals import SignalFlags
    from trainer.control import Agreed

__all__ = ["ClusterAwareTrainer", "train"]


def train(settings: Settings, env: JobEnv, flags: SignalFlags | None = None) -> int:
    """Train until the last step or a signal.

    Args:
        settings: the config.
        env: which rank of which job this is.
        flags: from :func:`~slurmkit.runtime.signals.catch_signals`, entered before torch was imported;
            made here if None.

    Returns:
        The exit code: 0 finished, or saved and requeued; 75 saved but not requeued; 143 saved after
        SIGTERM; 130 saved after SIGINT; an error's own code.
    """
    with contextlib.ExitStack() as stack:
        caught = flags if flags is not None else stack.enter_context(catch_signals())
        try:
            env.point_dir.mkdir(parents=True, exist_ok=True)
            set_threads(env)
            stack.enter_context(deterministic(on=settings.trainer.deterministic))
            with joined(env, settings.trainer.device, settings.trainer.rendezvous_seconds) as ranks:
                return ClusterAwareTrainer(settings, env, ranks, caught).run()
        except SlurmkitError as error:
            tell(error, env)
            return error.exit_code


class ClusterAwareTrainer:
    """One life of a run on one rank.

    Args:
        settings: the config.
        env: which rank of which job this is.
        ranks: all ranks, present.
        flags: the signals that came so far.
    """

    def __init__(self, settings: Settings, env: JobEnv, ranks: Ranks, flags: SignalFlags) -> None:
        self.settings = settings
        self.config = settings.trainer
        self.env = env
        self.ranks = ranks
        self.control = ranks.control
        self.flags = flags
        self.lead = env.rank == 0
        self.step = 0
        self.digest = ""
        self.loss = math.nan
        self._saved_step = -1
        self._saved_at = time.monotonic()
        root = self.config.checkpoint.root
        folder = Path(root) / env.run_dir.name / str(env.point) if root else env.point_dir / "checkpoints"
        self.store = CheckpointStore(folder, self.config.checkpoint.keep, env.life())
        self.events = EventLog(env.point_dir, {**env.life(), "life": self.store.nonce}, active=self.lead)
        self.metrics = MetricLog(
            env.point_dir, {"restart": env.restart, "life": self.store.nonce}, active=self.lead
        )

    # -- one life ------------------------------------------------------------------------------------

    def run(self) -> int:
        """Train, or find that there is nothing left to do.

        Returns:
            The exit code.

        Raises:
            SlurmkitError: on every rank, if one of them cannot go on.
        """
        if self._is_finished():
            return 0
        try:
            with self._set_up():
                return self._loop()
        except SlurmkitError as error:
            self.events.emit("error", message=str(error), step=self.step)
            raise
        except RuntimeError as error:
            self.events.emit("error", message=str(error), step=self.step)
            if "gloo" in str(error) or "NCCL" in str(error):
                words = str(error).splitlines()[0]
                raise SlurmkitError(
                    f"contact to another rank was lost in step {self.step + 1}: {words}",
                    hint="look for the rank that ended first; a new job goes on from the last checkpoint",
                ) from error
            raise
        finally:
            with contextlib.suppress(OSError):
                self.metrics.flush()

    def _loop(self) -> int:
        steps, every = self.config.steps, self.config.checkpoint.every
        early = self._stop_before_the_first_step()
        if early and self.step < steps:
            return self._stop(early)
        while self.step < steps:
            agreed = self.control.exchange(self._train_step())
            self._record(agreed)
            stop = self._stop_of(agreed)
            due = any(one.save for one in agreed) or (every and self.step % every == 0)
            if (stop or due) and self.step < steps:
                rest = self.control.drain()
                self._record(rest)
                stop |= self._stop_of(rest)
                self._save()
                if stop:
                    return self._stop(stop)
        self._record(self.control.drain())
        return self._finish()

    def _stop_before_the_first_step(self) -> Stop:
        """Signals that came while the ranks were starting: no grace is spent on a step."""
        stop = Stop.NONE
        for said in self.control.gather(b"%d" % self.flags.stop.value):
            stop |= Stop(int(said))
        return stop

    @staticmethod
    def _stop_of(agreed: list[Agreed]) -> Stop:
        stop = Stop.NONE
        for one in agreed:
            stop |= one.stop
        return stop

    # -- start ---------------------------------------------------------------------------------------

    def _is_finished(self) -> bool:
        """Slurm may requeue a run that has finished (in the grace of a preemption): say so, and end."""
        path = self.env.point_dir / RESULT
        found = self.control.broadcast(json.dumps(read_json(path)).encode() if self.lead else None)
        result: dict[str, Any] = json.loads(found) or {}
        finished = result.get("state") == "finished" and result.get("steps", 0) >= self.config.steps
        if finished:
            self._say(f"already finished: {path} says step {result['steps']}, loss {result['loss']:.4f}")
        return finished

    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        config, env = self.config, self.env
        state.seed_everything(config.seed)
        with self.control.together(self.ranks.nodes):
            self.samples = open_samples(self.settings.data, env.submit_dir)
            self.parts = shares(config.batch_size, config.accumulate, env.rank, env.world_size)
            self.model = build_model(self.settings.model).to(self.ranks.device)
            self.optimizer = build_optimizer(self.settings.optim, self.model)
            self.optim = OptimConfig.of(self.settings.optim)
        self.order = SampleOrder(config.seed, len(self.samples))
        self.identity = identity_of(self.settings, self.samples)
        first = {key: value.detach().clone() for key, value in self.model.state_dict().items()}
        device_ids = [self.ranks.device] if self.ranks.device.type == "cuda" else None
        self.ddp = DistributedDataParallel(self.model, device_ids=device_ids)
        self._warm_up()
        self.model.load_state_dict(first)
        found, skipped = find_checkpoint(self.store, self.control, self.ranks.nodes, lead=self.lead)
        with self.control.together(self.ranks.nodes):
            check_identity(
                found[1]["identity"] if found else self.identity, self.identity, str(self.store.root)
            )
        for one in skipped:
            self.events.emit("skip", checkpoint=one.name, why=one.why)
            self._say(f"skipped checkpoint {one.name}: {one.why}")
        self._announce(found)
        if found is not None:
            tensors, facts = found
            state.restore_model(self.model, tensors)
            state.restore_optimizer(self.optimizer, tensors, facts)
            self.step, self.digest, self.loss = facts["step"], facts["samples"], facts["loss"]
            self._saved_step = self.step
        self.feed = Feed(
            self.samples,
            self.order,
            batch_size=config.batch_size,
            parts=self.parts,
            span=range(self.step, config.steps),
            workers=self.settings.data.workers,
        )
        # Last of all: whatever was made above may have drawn random numbers.
        if found is None or not state.restore_random_state(found[1], found[0], env.rank, self.ranks.device):
            state.seed_everything(config.seed, 1 + env.rank, self.step)
        try:
            yield
        finally:
            self.feed.close()
            self.samples.close()

    def _warm_up(self) -> None:
        """Two throwaway passes: DDP regroups its buckets after the first, and then sums in another order.

        Without it the first step after a resume would differ in its last bits from an uninterrupted one.
        """
        first, count = self.parts[0]
        _, inputs, targets = self.samples.batch(self.order.at(first, count))
        for _ in range(2):
            self.ddp(inputs.to(self.ranks.device), targets.to(self.ranks.device)).backward()
        self.optimizer.zero_grad(set_to_none=True)

    def _announce(self, found: tuple[dict[str, torch.Tensor], dict[str, Any]] | None) -> None:
        env, nodes = self.env, list(dict.fromkeys(self.ranks.nodes))
        self.events.emit(
            "start", ranks=env.world_size, nodes=nodes, backend=self.ranks.backend, source=env.source
        )
        job = f"job {env.own_id} restart {env.restart}, " if env.in_slurm else ""
        size = sum(parameter.numel() for parameter in self.model.parameters())
        self._say(
            f"{self.settings.name}: {job}{env.world_size} ranks on {', '.join(nodes)}, {self.ranks.backend}, "
            f"{size / 1e6:.2f} M parameters, {len(self.samples)} samples"
        )
        if found is not None:
            facts = found[1]
            self.events.emit(
                "resume", step=facts["step"], cursor=facts["cursor"], ranks_before=len(facts["rng"])
            )
            self._say(f"resumed after step {facts['step']}, at sample {facts['cursor']}")

    # -- a step --------------------------------------------------------------------------------------

    def _train_step(self) -> Report:
        began = time.perf_counter()
        step = self.step + 1
        self._set_lr(step)
        losses, samples, order = [], 0, 0
        for turn, (first, _) in enumerate(self.parts):
            ids, inputs, targets = next(self.feed)
            last = turn == len(self.parts) - 1
            with contextlib.nullcontext() if last else self.ddp.no_sync():
                loss = self.ddp(inputs.to(self.ranks.device), targets.to(self.ranks.device))
                (loss / len(self.parts)).backward()
            losses.append(loss.detach() * len(ids))
            samples += len(ids)
            order += order_checksum(self.step * self.config.batch_size + first, ids)
            if self.config.log_samples:
                log_samples(self.env, step, self.step * self.config.batch_size + first, ids.tolist())
        healthy = self._clip()
        if healthy:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step = step
        loss_sum = float(sum(losses)) if healthy else math.nan
        interval = self.config.checkpoint.seconds
        due = self.lead and interval > 0 and time.monotonic() - self._saved_at > interval
        return Report(step, loss_sum, samples, order, self.flags.stop, due, time.perf_counter() - began)

    def _set_lr(self, step: int) -> None:
        if self.optim is not None:
            lr = self.optim.lr_at(step, self.config.steps)
            for group in self.optimizer.param_groups:
                group["lr"] = lr

    def _clip(self) -> bool:
        """Whether the gradient is finite; it is the same on all ranks."""
        limit = self.optim.clip if self.optim is not None else 0.0
        if not limit:
            return True
        return bool(torch.isfinite(clip_grad_norm_(self.model.parameters(), limit)))

    def _record(self, agreed: list[Agreed]) -> None:
        for one in agreed:
            if not math.isfinite(one.loss):
                words = f"the loss or the gradient of step {one.step} is not finite ({one.loss}); not saved"
                hint = "try a smaller optim.lr or optim.clip; the checkpoints before it are untouched"
                raise shared(SlurmkitError(words, hint))
            self.loss = one.loss
            self.digest = chain(self.digest, one.step, one.order)
            lr = (
                self.optim.lr_at(one.step, self.config.steps)
                if self.optim
                else self.optimizer.param_groups[0]["lr"]
            )
            cursor = one.step * self.config.batch_size
            self.metrics.add(
                step=one.step,
                loss=one.loss,
                cursor=cursor,
                lr=lr,
                seconds=round(one.seconds, 6),
                samples=self.digest,
            )
            every = self.config.log_every
            if every and (one.step % every == 0 or one.step == self.config.steps):
                rate = one.samples / one.seconds if one.seconds else 0.0
                self._say(f"step {one.step}/{self.config.steps}  loss {one.loss:.4f}  {rate:.0f} samples/s")

    # -- save and stop -------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._saved_step == self.step:
            return
        began = time.monotonic()
        states = self.control.gather(state.random_state(self.ranks.device))
        size, folder = 0, None
        with self.control.together(self.ranks.nodes):
            if self.lead:
                files = state.pack(self.model, self.optimizer, states, self._facts())
                try:
                    self.metrics.flush()
                except OSError as error:
                    raise CheckpointError(
                        f"{self.metrics.path} could not be written: {error.strerror or error}",
                        hint="free space there; the checkpoints that are committed stay",
                    ) from error
                folder = self.store.save(self.step, files)
                size = sum(map(len, files.values()))
        self._saved_step, self._saved_at = self.step, time.monotonic()
        if folder is not None:
            seconds = round(self._saved_at - began, 4)
            first = self.flags.first
            after = round(self._saved_at - first.monotonic, 4) if first else None
            self.events.emit(
                "checkpoint",
                step=self.step,
                seconds=seconds,
                bytes=size,
                path=str(folder),
                after_signal=after,
            )
            self._say(f"saved step {self.step} in {seconds:.2f} s: {folder}")

    def _facts(self) -> dict[str, Any]:
        cursor = self.step * self.config.batch_size
        position = {
            "step": self.step,
            "cursor": cursor,
            "epoch": cursor // len(self.samples),
            "samples": self.digest,
        }
        origin = {"life": self.env.life(), "world_size": self.env.world_size, "torch": torch.__version__}
        return {"version": 1, **position, "loss": self.loss, "identity": self.identity, **origin}

    def _stop(self, stop: Stop) -> int:
        """After the save: rank 0 asks Slurm why, and requeues the job if that is right."""
        names = stop.names()
        first = self.flags.first
        self.events.emit("signal", signals=names, arrived=first.unix if first else None, step=self.step)
        saved = f"saved after step {self.step}" if self.step else "no step is done yet"
        self._say(f"{' and '.join(names)} came; {saved}")
        said = b""
        if self.lead:
            ending = end_life(self.env.own_id, stop, self.env.restart)
            cause = ending.cause.value if ending.cause else None
            self.events.emit(
                "requeue" if ending.requeued else "stop",
                cause=cause,
                code=ending.code,
                words=ending.words,
                step=self.step,
            )
            self._say(ending.words)
            said = str(ending.code).encode()
        return int(self.control.broadcast(said))

    def _finish(self) -> int:
        self._save()
        with self.control.together(self.ranks.nodes):
            if self.lead:
                end = {"steps": self.step, "loss": self.loss, "samples": self.digest}
                proof = {
                    "parameters_sha256": state.digest_of(self.model),
                    "time": time.time(),
                    **self.env.life(),
                }
                result = {"state": "finished", "name": self.settings.name, **end, **proof}
                try:
                    write_atomic(self.env.point_dir / RESULT, json.dumps(result, indent=1) + "\n")
                except OSError as error:
                    raise SlurmkitError(
                        f"{self.env.point_dir / RESULT} could not be written: {error}"
                    ) from error
        self.events.emit("finish", step=self.step, loss=self.loss)
        self._say(f"finished: step {self.step}, loss {self.loss:.4f}")
        return 0

    def _say(self, line: str) -> None:
        if self.lead:
            print(line, flush=True)
