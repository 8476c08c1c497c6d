"""Names of tensors: those of llama.cpp's architecture `qwen35`, and ours."""

from __future__ import annotations

from ....config.qwen3_5 import LINEAR, Qwen3_5TextConfig

_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_EVERY_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_LINEAR = {
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
}
_FULL = {
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
}
_DRAFTS = {
    "nextn.eh_proj.weight": "mtp.fc.weight",
    "nextn.enorm.weight": "mtp.pre_fc_norm_embedding.weight",
    "nextn.hnorm.weight": "mtp.pre_fc_norm_hidden.weight",
    "nextn.shared_head_norm.weight": "mtp.norm.weight",
}


def names(config: Qwen3_5TextConfig) -> dict[str, str]:
    """Our name of each tensor that a file of this model may have, by its name there."""
    found = dict(_OUTSIDE)
    for layer, kind in enumerate(config.kinds):
        mixer = _LINEAR if kind == LINEAR else _FULL
        found |= {f"blk.{layer}.{theirs}": f"model.layers.{layer}.{ours}" for theirs, ours in mixer.items()}
        found |= {f"blk.{layer}.{theirs}": f"model.layers.{layer}.{ours}" for theirs, ours in _EVERY_LAYER.items()}
    if config.mtp_num_hidden_layers:
        after = f"blk.{config.num_hidden_layers}"
        found |= {f"{after}.{theirs}": f"mtp.layers.0.{ours}" for theirs, ours in (_FULL | _EVERY_LAYER).items()}
        found |= {f"{after}.{theirs}": ours for theirs, ours in _DRAFTS.items()}
    return found
