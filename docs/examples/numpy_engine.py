import numpy as np
from safetensors.torch import load_file  # torch only reads: NumPy has no BF16

from conformance.checkpoints.store import read_spec
from conformance.workers.adapter import Adapter


def norm(x, w, c, eps):
    return (c + w) * x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps))


def rope(x, theta):  # [T, heads, d]
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None, None] * theta ** (-np.arange(half) / half)
    cos, sin, a, b = np.cos(angle), np.sin(angle), x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


class NumpyEngine(Adapter):
    releases = ("4k",)

    def prepare(self, checkpoint):
        files = checkpoint.glob("*.safetensors")
        return read_spec(checkpoint), {k: v.float().numpy() for f in files for k, v in load_file(f).items()}

    def run(self, model, feed):
        spec, w = model
        x = w["model.embed_tokens.weight"][list(feed.tokens[0])]  # [T, D]
        back = np.arange(len(x))[:, None] - np.arange(len(x))  # how far before the query a key lies
        for i, kind in enumerate(spec.layer_kinds):
            p = {k.split(f".{i}.")[1][:-7]: v for k, v in w.items() if f"layers.{i}." in k}
            eps, d, local, groups = spec.rms_norm_eps, spec.head_dim, kind == "local", spec.groups
            heads = (norm(x, p["pre_mixer_norm"], 1, eps) @ p["mixer.qkv_proj"].T).reshape(len(x), -1, d)
            n = spec.num_attention_heads
            q, k, v = np.split(heads, [n, n + spec.num_key_value_heads], axis=1)
            theta = spec.rope_local_theta if local else spec.rope_theta
            q = rope(norm(q, p["mixer.q_norm"], 1, eps), theta)
            k = rope(norm(k, p["mixer.k_norm"], 1, eps), theta).repeat(groups, axis=1)
            scores = np.einsum("thd,shd->hts", q, k) / np.float32(d**0.5)
            scores[:, (back < 0) | (local & (back > spec.window_size))] = -np.inf
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            mixed = np.einsum("hts,shd->thd", shares, v.repeat(groups, axis=1)).reshape(len(x), -1)
            x = x + norm(mixed @ p["mixer.o_proj"].T, p["post_mixer_norm"], np.float32(0.2), eps)
            gate, up = np.split(norm(x, p["pre_mlp_norm"], 1, eps) @ p["mlp.gate_up_proj"].T, 2, axis=1)
            inner = gate / (1 + np.exp(-gate)) * up @ p["mlp.down_proj"].T
            x = x + norm(inner, p["post_mlp_norm"], np.float32(5**-1.5), eps)
        head = w["model.embed_tokens.weight" if spec.tie_word_embeddings else "lm_head.weight"]
        return (norm(x, w["model.norm.weight"], 1, eps) @ head[: spec.vocab_size].T)[None]
