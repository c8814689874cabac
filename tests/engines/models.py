"""Small random models and requests for the engine tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from mixharness.engines.base import Completion, GenerateRequest, LogProbs, Sampling, TokenIds

VOCAB = 64


def qwen3(seed: int = 0, tied: bool = True) -> Qwen3ForCausalLM:
    """Two layers; weights large enough that the distributions aren't flat."""
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1024,
        tie_word_embeddings=tied,
        initializer_range=0.3,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        bos_token_id=None,
        eos_token_id=None,
    )
    return randomised(Qwen3ForCausalLM(config), seed)


def llama(seed: int = 0) -> LlamaForCausalLM:
    """Another architecture, with an odd number of layers."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=1,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
    )
    return randomised(LlamaForCausalLM(config), seed)


def randomised(model: Any, seed: int) -> Any:
    """Norm scales too: fresh ones are all 1 and would hide a wrong fold."""
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.3)
    return model.eval()


def reference(model: PreTrainedModel, prompt: TokenIds, completion: Completion) -> LogProbs:
    """Log-probs of a completion from one fresh forward of transformers' own model."""
    ids = torch.from_numpy(np.concatenate([prompt, completion.ids]).astype(np.int64))[None]
    with torch.no_grad():
        logprobs = model(ids[:, :-1]).logits[0].log_softmax(-1)
    picked: LogProbs = logprobs.gather(-1, ids[0, 1:, None])[len(prompt) - 1 :, 0].numpy()
    return picked


def request(
    prompt: list[int] | TokenIds, max_tokens: int = 8, seed: int | None = None, **sampling: float
) -> GenerateRequest:
    return GenerateRequest(np.array(prompt, np.int32), Sampling(max_tokens=max_tokens, seed=seed, **sampling))  # type: ignore[arg-type]
