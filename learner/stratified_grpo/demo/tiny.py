"""A tiny Qwen3-architecture policy with a tokenizer of its own, both in the Hugging Face format.

Small enough to learn on a laptop's CPU; head size 32 is one that vLLM's CPU attention accepts. The
tokenizer is a byte-level BPE (every text round-trips) in which each tag is one token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from stratified_grpo.checkpoint import publish

END = "<|end|>"
TAGS = ("<search>", "</search>", "<information>", "</information>", "<answer>", "</answer>")


def write_tiny_model(
    folder: Path,
    texts: Iterable[str],
    *,
    vocabulary: int = 1024,
    width: int = 128,
    layers: int = 3,
    heads: int = 4,
    tags: Sequence[str] = TAGS,
    seed: int = 0,
) -> None:
    """Train the tokenizer on texts and write a randomly initialised model beside it.

    Args:
        folder: to be created (replaced when it exists).
        texts: what the policy will read and write.
        vocabulary: tokens, at least 300.
        width: hidden size; the feed-forward layer is three times as wide.
        layers: transformer blocks.
        heads: attention heads of size ``width / heads``.
        tags: strings that are one token each (ordinary, not special).
        seed: of the initialisation.
    """
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    backend = _train_tokenizer(texts, vocabulary, tags)
    make_tokenizer: Any = PreTrainedTokenizerFast
    tokenizer = make_tokenizer(tokenizer_object=backend, eos_token=END)
    config = Qwen3Config(
        vocab_size=backend.get_vocab_size(),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=width // heads,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        initializer_range=0.06,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(seed)
    make_model: Any = Qwen3ForCausalLM
    model = make_model(config)
    for name, parameter in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            # At 1 the normalised queries and keys of a narrow head cannot pick one token of many,
            # and copying is learned late or never.
            torch.nn.init.constant_(parameter, 2.0)

    def write(target: Path) -> None:
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)

    publish(folder, write)


def _train_tokenizer(texts: Iterable[str], vocabulary: int, tags: Sequence[str]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(tags),
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return backend
