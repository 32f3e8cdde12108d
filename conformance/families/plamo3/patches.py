"""Patches of the engines that run PLaMo 3: data alone, what applies them is imported in workers.

The stand-ins build their masks themselves, so nothing is planted in `transformers.masking_utils`: they never
call it. What they use of Transformers is the cache (2604 alone; 4k has a cache class of its own), tied
weights, and PyTorch's attention.
"""

from __future__ import annotations

from conformance.patches import Patch

__all__ = ["PATCHES"]

_BOTH = ("2604", "4k")
_TRANSFORMERS = "conformance.backends.transformers.patches"
_VLLM = "conformance.backends.vllm.patches"
_OWN = "conformance.families.plamo3.vllm_patches"


def _vllm(
    name: str,
    function: str,
    where: str,
    what: str,
    *,
    module: str = _VLLM,
    releases: tuple[str, ...] = ("2604",),
    shows: str = "any run",
    fault: str | None = None,
) -> Patch:
    apply = f"{module}:{function}"
    return Patch(
        name=name,
        what=what,
        backend="vllm",
        where=where,
        apply=apply,
        releases=releases,
        shows=shows,
        fault=fault,
    )


def _transformers(
    release: str,
    name: str,
    function: str,
    where: str,
    what: str,
    *,
    shows: str = "any run",
    fault: str | None = None,
) -> Patch:
    return Patch(
        name=name,
        what=what,
        backend=f"plamo3-{release}",
        where=where,
        apply=f"{_TRANSFORMERS}:{function}",
        releases=(release,),
        shows=shows,
        fault=fault,
    )


_OF_VLLM = (
    _vllm(
        "vllm-window-long",
        "window_long",
        "Attention.__init__",
        "Layers with a window see one token too many.",
        shows="beyond the window",
        fault="window-one-long",
    ),
    _vllm(
        "vllm-window-short",
        "window_short",
        "Attention.__init__",
        "Layers with a window see one token too few.",
        releases=_BOTH,
        shows="at the window",
    ),
    _vllm(
        "vllm-window-short-in-decode",
        "window_short_in_decode",
        "CPUAttentionBackendImpl.forward",
        "The kernel's window is one token too short in steps of one token a request.",
        shows="decode at the window",
        fault="window-one-short-in-decode",
    ),
    _vllm(
        "vllm-window-on-every-layer",
        "window_on_every_layer",
        "Attention.__init__",
        "Layers without a window get the window of the others.",
        shows="global layers beyond the window",
        fault="window-on-global-layers",
    ),
    _vllm(
        "vllm-scale-missing",
        "scale_missing",
        "Attention.__init__",
        "Scores are not scaled.",
        fault="scale-missing",
    ),
    _vllm(
        "vllm-rope-shared",
        "rope_shared",
        "rotary_embedding._ROPE_DICT",
        "RoPE modules are cached by their shape alone, so that global layers get those of local ones.",
        releases=("4k",),
        shows="global layers",
        fault="theta-global-is-local",
    ),
    _vllm(
        "vllm-yarn-missing",
        "yarn_missing",
        "YaRNScalingRotaryEmbedding._compute_inv_freq",
        "YaRN's frequencies are the plain ones, and its amplitude is 1.",
        shows="2604, global layers",
        fault="yarn-missing",
    ),
    _vllm(
        "vllm-yarn-rounded",
        "yarn_rounded",
        "yarn_scaling_rope.yarn_find_correction_range",
        "The ends of YaRN's ramp are rounded, though the configuration says that they must not be.",
        shows="2604, global layers",
        fault="yarn-range-rounded",
    ),
    _vllm(
        "vllm-amplitude-missing",
        "amplitude_missing",
        "yarn_scaling_rope.yarn_get_mscale",
        "YaRN's amplitude is 1.",
        shows="2604, global layers",
        fault="amplitude-missing",
    ),
    _vllm(
        "vllm-q-norm-missing",
        "q_norm_missing",
        "Plamo3AttentionMixer.__init__",
        "Queries are not normalised.",
        module=_OWN,
        fault="q-norm-missing",
    ),
    _vllm(
        "vllm-post-mixer-offset",
        "post_mixer_offset_one",
        "plamo3.rms_norm_weight_loader",
        "post_mixer_norm is loaded with the offset 1 instead of 1/5.",
        module=_OWN,
        fault="offset-one-post-mixer",
    ),
    _vllm(
        "vllm-gate-up-exchanged",
        "gate_up_exchanged",
        "SiluAndMul.forward_native",
        "The second half of gate and up is taken for the gate.",
        releases=_BOTH,
        fault="gate-up-exchanged",
    ),
    _vllm(
        "vllm-decode-position-late",
        "decode_position_late",
        "GPUModelRunner._prepare_inputs",
        "Single tokens on top of the cache are one position too late.",
        releases=_BOTH,
        shows="decode",
        fault="decode-position-one-late",
    ),
    _vllm(
        "vllm-decode-slot-early",
        "decode_slot_early",
        "BlockTable.compute_slot_mapping",
        "Single tokens on top of the cache are written to the slot before their own.",
        shows="decode",
    ),
    _vllm(
        "vllm-blocks-of-first-row",
        "blocks_of_first_row",
        "CPUAttentionMetadataBuilder.build",
        "In decode, all requests of a step read the first one's blocks of the KV cache.",
        shows="batch, decode",
    ),
    _vllm(
        "vllm-block-appended-early",
        "block_appended_early",
        "BlockTable.append_row",
        "A block of the KV cache that a later step adds takes the place of the one before it.",
        shows="cached, beyond a block of 32 tokens",
    ),
    _vllm(
        "vllm-row-not-moved",
        "row_not_moved",
        "BlockTable.move_row",
        "A request that takes the place of an ended one does not take its blocks of the KV cache along.",
        shows="decode, rows of unequal length",
    ),
)

_OF_TRANSFORMERS = (
    _transformers(
        "2604",
        "cache-one-short",
        "sliding_one_short",
        "DynamicSlidingWindowLayer.update",
        "A full sliding layer keeps one token too few.",
        shows="cached at the window",
        fault="cache-one-short",
    ),
    _transformers(
        "2604",
        "cache-keeps-first",
        "sliding_keeps_first",
        "DynamicSlidingWindowLayer.update",
        "A full sliding layer keeps its oldest tokens and drops the newest.",
        shows="cached beyond the window",
    ),
    _transformers(
        "2604",
        "cache-length-capped",
        "sliding_length_capped",
        "DynamicSlidingWindowLayer.get_seq_length",
        "A sliding layer answers what it holds, not what it has seen, so that crop never refuses.",
        shows="crop beyond the window",
    ),
    _transformers(
        "2604",
        "cache-full-layers-slide",
        "full_layers_slide",
        "DynamicCache.__init__",
        "The cache of a full-attention layer evicts as a sliding one does.",
        shows="global layers, cached beyond the window",
    ),
    _transformers(
        "2604",
        "cache-bfloat16",
        "cache_in_bfloat16",
        "DynamicLayer.update, DynamicSlidingWindowLayer.update",
        "Keys and values are cached in BF16.",
        shows="float32, with a cache",
    ),
    _transformers(
        "2604",
        "crop-ignored",
        "crop_ignored",
        "Cache.crop",
        "Cutting the cache back does nothing.",
        shows="crop",
        fault="crop-ignored",
    ),
    _transformers(
        "2604",
        "reorder-sliding-only",
        "reorder_sliding_only",
        "Cache.reorder_cache",
        "Cache rows are moved in sliding layers only.",
        shows="reorder, global layers",
        fault="reorder-local-only",
    ),
    _transformers(
        "2604",
        "reorder-keys-only",
        "reorder_keys_only",
        "CacheLayerMixin.reorder_cache",
        "Cache rows are moved in the keys, but not in the values.",
        shows="reorder",
        fault="reorder-keys-only",
    ),
    _transformers(
        "2604",
        "attention-heads-tiled",
        "heads_tiled",
        "scaled_dot_product_attention",
        "Grouped attention gives query head h the K/V head h mod Hkv.",
        fault="gqa-tiled",
    ),
    _transformers(
        "4k",
        "attention-one-row-unmasked",
        "one_row_unmasked",
        "scaled_dot_product_attention",
        "A query of one row takes a kernel that has no mask.",
        shows="decode, padded or segments",
    ),
    _transformers(
        "4k",
        "attention-causal-at-start",
        "causal_mask_at_the_start",
        "scaled_dot_product_attention",
        "On top of a cache, the mask is a causal one that is anchored at the first key.",
        shows="cached",
        fault="mask-top-left",
    ),
    _transformers(
        "4k",
        "attention-one-ahead",
        "mask_one_ahead",
        "scaled_dot_product_attention",
        "Every query sees the key after its last one too.",
        shows="several at a time",
        fault="mask-one-ahead",
    ),
    _transformers(
        "4k",
        "weights-untied",
        "weights_untied",
        "PreTrainedModel.tie_weights",
        "A tied head is not tied when the model is loaded, which then lacks a tensor.",
        shows="tied",
    ),
)

PATCHES = (*_OF_VLLM, *_OF_TRANSFORMERS)
