"""AdamW with warm-up and gradient clipping; a step that is not finite is skipped and counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stratified_grpo.errors import TrainingError


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """AdamW and its schedule."""

    lr: float
    """Learning rate after warm-up."""
    warmup: int
    """Optimizer steps over which the rate rises linearly; 0 starts at full rate."""
    weight_decay: float
    """Decoupled; applied to matrices only."""
    betas: tuple[float, float]
    """AdamW's moment decays."""
    max_grad_norm: float
    """Gradients are scaled down to this global L2 norm."""
    nonfinite_limit: int
    """So many skipped steps in a row stop the run."""


class Optimizer:
    """One model's AdamW.

    Args:
        model: its trainable parameters are optimised.
        settings: rates and limits.
        decay: factor of the learning rate after a number of steps; constant by default.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: OptimizerSettings,
        decay: Callable[[int], float] = lambda _: 1.0,
    ) -> None:
        self.settings = settings
        self._decay = decay
        self.steps = 0
        """Steps taken; decides the warm-up."""
        self.skipped = 0
        """Steps skipped in a row."""
        self._named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        matrices = [p for _, p in self._named if p.dim() >= 2]
        vectors = [p for _, p in self._named if p.dim() < 2]
        self._adam = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": settings.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=settings.lr,
            betas=settings.betas,
        )

    @property
    def lr(self) -> float:
        """Rate of the next step."""
        warmup = self.settings.warmup
        rise = min(1.0, (self.steps + 1) / warmup) if warmup else 1.0
        return self.settings.lr * rise * self._decay(self.steps)

    def zero_grad(self) -> None:
        """Drop all gradients."""
        self._adam.zero_grad(set_to_none=True)

    def step(self) -> float:
        """Clip and apply the gradients, unless their norm is not finite.

        Returns:
            The global L2 norm before clipping; NaN or infinite when the step was skipped.

        Raises:
            TrainingError: ``nonfinite_limit`` steps in a row were skipped.
        """
        norm = self._clip(p for _, p in self._named)
        if not torch.isfinite(norm):
            self.skip()
            return float(norm)
        self.skipped = 0
        for group in self._adam.param_groups:
            group["lr"] = self.lr
        self._adam.step()
        self.steps += 1
        self.zero_grad()
        return float(norm)

    def skip(self) -> float:
        """Count a step that cannot be taken, and drop its gradients.

        Returns:
            NaN, in place of the gradients' norm.

        Raises:
            TrainingError: ``nonfinite_limit`` steps in a row were skipped.
        """
        self.skipped += 1
        self.zero_grad()
        if self.skipped >= self.settings.nonfinite_limit:
            raise TrainingError(
                f"{self.skipped} optimizer steps in a row had log-probabilities or gradients that "
                "are not finite; the last checkpoint is intact: lower lr or look at the episodes "
                "of these steps"
            )
        return math.nan

    def _clip(self, parameters: Iterable[Tensor]) -> Tensor:
        return torch.nn.utils.clip_grad_norm_(list(parameters), self.settings.max_grad_norm)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name (``exp_avg/<parameter>``, ...) and plain numbers, for a checkpoint."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self._named:
            for key, value in self._adam.state.get(parameter, {}).items():
                tensors[f"{key}/{name}"] = torch.as_tensor(value).detach().clone().contiguous()
        return tensors, {"steps": self.steps, "skipped": self.skipped}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        by_name = dict(self._named)
        for key, value in tensors.items():
            kind, name = key.split("/", 1)
            parameter = by_name[name]
            home = value if kind == "step" else value.to(parameter.device)
            self._adam.state[parameter][kind] = home
        self.steps = int(numbers["steps"])
        self.skipped = int(numbers["skipped"])
