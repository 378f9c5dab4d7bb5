import numpy as np


def path(input_ids, embed_tokens_weight, input_layernorm_weight, *, eps=1e-06):
    embedding_6 = np.where(input_ids < 0, input_ids + 1024, input_ids)
    embedding = embed_tokens_weight[embedding_6]
    pow_1 = embedding**2
    mean = pow_1.sum(-1, keepdims=True) / 64
    add_115 = mean + np.float32(eps)
    val_78 = np.sqrt(add_115)
    rsqrt = 1 / val_78
    mul_94 = embedding * rsqrt
    mul_98 = input_layernorm_weight * mul_94
    return embedding, mul_98


import numpy as np

from noyau.functions import cast


def path(attention_mask, *, fill=-3.4028235e38):
    sequence = attention_mask.shape[1]
    to_copy = attention_mask != 0
    arange = np.arange(sequence)
    unsqueeze_9 = arange[None, None, :, None]
    le = arange <= unsqueeze_9
    bitwise_and = True & le
    val_64 = to_copy[:, None, None]
    bitwise_and_1 = bitwise_and & val_64
    where = np.where(bitwise_and_1, cast(0, "f32"), np.float32(fill))
    return where


import numpy as np

from noyau.functions import cast


def path(unsqueeze_13, rotary_emb_inv_freq):
    sequence = unsqueeze_13.shape[1]
    to_copy_1 = cast(unsqueeze_13, "f32")
    mul_64 = to_copy_1 * rotary_emb_inv_freq
    cat = np.concatenate([mul_64, mul_64], 2)
    v_cos = np.cos(cat)
    v_sin = np.sin(cat)
    unsqueeze_14 = np.broadcast_to(v_cos, (1, 1, sequence, 16))
    unsqueeze_15 = np.broadcast_to(v_sin, (1, 1, sequence, 16))
    return unsqueeze_14, unsqueeze_15


import numpy as np


def path(linear, unsqueeze_14, unsqueeze_15):
    batch = linear.shape[0]
    sequence = linear.shape[1]
    view = linear.reshape(batch, sequence, 4, 16)
    transpose = view.transpose(0, 2, 1, 3)
    mul_137 = transpose * unsqueeze_14
    slice_4 = transpose[..., :8]
    slice_5 = transpose[..., 8:]
    neg = -slice_5
    cat_1 = np.concatenate([neg, slice_4], 3)
    mul_154 = cat_1 * unsqueeze_15
    add_210 = mul_137 + mul_154
    return add_210


import numpy as np


def path(linear_1, unsqueeze_14, unsqueeze_15):
    batch = linear_1.shape[0]
    sequence = linear_1.shape[1]
    view_1 = linear_1.reshape(batch, sequence, 4, 16)
    transpose_1 = view_1.transpose(0, 2, 1, 3)
    mul_162 = transpose_1 * unsqueeze_14
    slice_6 = transpose_1[..., :8]
    slice_7 = transpose_1[..., 8:]
    neg_1 = -slice_7
    cat_2 = np.concatenate([neg_1, slice_6], 3)
    mul_179 = cat_2 * unsqueeze_15
    add_246 = mul_162 + mul_179
    transpose_3 = add_246.transpose(0, 1, 3, 2)
    return transpose_3


def path(linear_2):
    batch = linear_2.shape[0]
    sequence = linear_2.shape[1]
    view_2 = linear_2.reshape(batch, sequence, 4, 16)
    transpose_2 = view_2.transpose(0, 2, 1, 3)
    return transpose_2
