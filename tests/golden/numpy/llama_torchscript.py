import numpy as np


def path(input_ids, embed_tokens_weight, input_layernorm_weight, *, eps=1e-06):
    embed_tokens_Gather_6 = np.where(input_ids < 0, input_ids + 1024, input_ids)
    embed_tokens_Gather = embed_tokens_weight[embed_tokens_Gather_6]
    input_layernorm_Pow = embed_tokens_Gather**2
    input_layernorm_ReduceMean = input_layernorm_Pow.sum(-1, keepdims=True) / 64
    input_layernorm_Add = input_layernorm_ReduceMean + np.float32(eps)
    input_layernorm_Sqrt = np.sqrt(input_layernorm_Add)
    input_layernorm_Div = 1 / input_layernorm_Sqrt
    input_layernorm_Mul = embed_tokens_Gather * input_layernorm_Div
    input_layernorm_Mul_1 = input_layernorm_weight * input_layernorm_Mul
    return embed_tokens_Gather, input_layernorm_Mul_1


import numpy as np

from noyau.functions import cast


def path(attention_mask, *, fill=-3.4028235e38):
    batch = attention_mask.shape[0]
    sequence = attention_mask.shape[1]
    model_Cast_1 = attention_mask != 0
    model_Range_2 = np.arange(sequence)
    model_Range = np.arange(sequence)
    model_Unsqueeze_5 = model_Range[None, None, :, None]
    model_LessOrEqual = model_Range_2 <= model_Unsqueeze_5
    model_And = True & model_LessOrEqual
    model_Flatten = model_Cast_1.reshape(batch * sequence, 1)
    model_Gather_4 = model_Flatten.reshape(batch, 1, 1, sequence, 1)
    model_Reshape = model_Gather_4.reshape(batch * sequence)
    model_Reshape_1 = model_Reshape.reshape(batch, 1, 1, sequence)
    model_And_1 = model_And & model_Reshape_1
    model_Where_1 = np.where(model_And_1, cast(0, "f32"), np.float32(fill))
    return model_Where_1


import numpy as np

from noyau.functions import cast


def path(rotary_emb_Unsqueeze, rotary_emb_Constant_1):
    sequence = rotary_emb_Unsqueeze.shape[1]
    rotary_emb_Cast = cast(rotary_emb_Unsqueeze, "f32")
    rotary_emb_Mul = rotary_emb_Cast * rotary_emb_Constant_1
    rotary_emb_Concat = np.concatenate([rotary_emb_Mul, rotary_emb_Mul], 2)
    rotary_emb_Cos = np.cos(rotary_emb_Concat)
    rotary_emb_Mul_1 = rotary_emb_Cos * 1
    rotary_emb_Sin = np.sin(rotary_emb_Concat)
    rotary_emb_Mul_2 = rotary_emb_Sin * 1
    self_attn_Unsqueeze_6 = np.broadcast_to(rotary_emb_Mul_1, (1, 1, sequence, 16))
    self_attn_Unsqueeze_7 = np.broadcast_to(rotary_emb_Mul_2, (1, 1, sequence, 16))
    return self_attn_Unsqueeze_6, self_attn_Unsqueeze_7


import numpy as np


def path(q_proj_MatMul, self_attn_Unsqueeze_6, self_attn_Unsqueeze_7):
    batch = q_proj_MatMul.shape[0]
    sequence = q_proj_MatMul.shape[1]
    self_attn_Reshape = q_proj_MatMul.reshape(batch, sequence, 4, 16)
    self_attn_Transpose = self_attn_Reshape.transpose(0, 2, 1, 3)
    self_attn_Mul = self_attn_Transpose * self_attn_Unsqueeze_6
    self_attn_Slice = self_attn_Transpose[..., :8]
    self_attn_Slice_1 = self_attn_Transpose[..., 8:]
    self_attn_Neg = -self_attn_Slice_1
    self_attn_Concat_3 = np.concatenate([self_attn_Neg, self_attn_Slice], 3)
    self_attn_Mul_1 = self_attn_Concat_3 * self_attn_Unsqueeze_7
    self_attn_Add = self_attn_Mul + self_attn_Mul_1
    return self_attn_Add


import numpy as np


def path(k_proj_MatMul, self_attn_Unsqueeze_6, self_attn_Unsqueeze_7):
    batch = k_proj_MatMul.shape[0]
    sequence = k_proj_MatMul.shape[1]
    self_attn_Reshape_1 = k_proj_MatMul.reshape(batch, sequence, 4, 16)
    self_attn_Transpose_1 = self_attn_Reshape_1.transpose(0, 2, 1, 3)
    self_attn_Mul_2 = self_attn_Transpose_1 * self_attn_Unsqueeze_6
    self_attn_Slice_2 = self_attn_Transpose_1[..., :8]
    self_attn_Slice_3 = self_attn_Transpose_1[..., 8:]
    self_attn_Neg_1 = -self_attn_Slice_3
    self_attn_Concat_4 = np.concatenate([self_attn_Neg_1, self_attn_Slice_2], 3)
    self_attn_Mul_3 = self_attn_Concat_4 * self_attn_Unsqueeze_7
    self_attn_Add_1 = self_attn_Mul_2 + self_attn_Mul_3
    self_attn_Transpose_3 = self_attn_Add_1.transpose(0, 1, 3, 2)
    return self_attn_Transpose_3


def path(v_proj_MatMul):
    batch = v_proj_MatMul.shape[0]
    sequence = v_proj_MatMul.shape[1]
    self_attn_Reshape_2 = v_proj_MatMul.reshape(batch, sequence, 4, 16)
    self_attn_Transpose_2 = self_attn_Reshape_2.transpose(0, 2, 1, 3)
    return self_attn_Transpose_2
