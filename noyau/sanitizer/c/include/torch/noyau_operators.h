/* Operators of torch that an extension calls between its kernels: each reads all cells of its operands, in order with
   grids, computes in long double, rounds once, and writes a packed result. Other operators do not compile. */
#ifndef NOYAU_OPERATORS_H
#define NOYAU_OPERATORS_H
#include <cmath>

namespace at {
typedef long double noyau_real;
/* The cells of a tensor, in order, as numbers. */
struct noyau_cells {
    noyau_numbers sizes;
    std::vector<noyau_real> cells;
    int64_t along(int64_t axis) const { return sizes[(size_t)axis]; }
    int64_t behind(int64_t axis) const { /* cells between neighbouring indices along an axis */
        return std::accumulate(sizes.begin() + axis + 1, sizes.end(), (int64_t)1, std::multiplies<int64_t>());
    }
};
inline noyau_cells noyau_read(const Tensor &x) {
    noyau_cells all{x.its_sizes, {}};
    noyau_each_cell(x, [&](char *at) { all.cells.push_back(noyau_cell_at(at, x.its_type)); });
    return all;
}
inline Tensor noyau_write(const noyau_cells &all, const Tensor &into) {
    size_t next = 0;
    if (into.its_sizes != all.sizes) throw std::runtime_error("the shapes of a result and of its memory differ");
    noyau_each_cell(into, [&](char *to) { noyau_put_cell(to, into.its_type, all.cells[next++]); });
    return into;
}
inline Tensor noyau_made(const noyau_cells &all, ScalarType type, const Tensor &like) {
    return noyau_write(all, empty(all.sizes, TensorOptions(type, like.on_gpu)));
}
inline ScalarType noyau_float(const Tensor &x) { return x.is_floating_point() ? x.its_type : ScalarType::Float; }
inline void noyau_require_alike(const Tensor &x, const Tensor &y) {
    if (x.its_type != y.its_type) throw noyau_lack("operators on tensors of two dtypes are not computed here");
}

template <class F> Tensor noyau_map(const Tensor &x, ScalarType type, F f) {
    noyau_cells all = noyau_read(x);
    for (auto &each : all.cells) each = f(each);
    return noyau_made(all, type, x);
}
/* Broadcasts: axes of one cell are stretched, missing ones are added in front. */
template <class F> Tensor noyau_zip(const Tensor &x, const Tensor &y, ScalarType type, F f) {
    noyau_require_alike(x, y);
    const size_t rank = std::max(x.its_sizes.size(), y.its_sizes.size());
    noyau_numbers sizes(rank);
    const auto stretched = [&](const Tensor &of) {
        noyau_numbers strides(rank, 0);
        for (size_t i = rank - of.its_sizes.size(), k = 0; i < rank; ++i, ++k) strides[i] = of.its_sizes[k] == 1 ? 0 : of.its_strides[k];
        return of.strided(0, sizes, strides);
    };
    for (size_t i = 1; i <= rank; ++i) {
        const int64_t a = i <= x.its_sizes.size() ? x.size(-(int64_t)i) : 1, b = i <= y.its_sizes.size() ? y.size(-(int64_t)i) : 1;
        if (a != b && a != 1 && b != 1) throw std::runtime_error("the shapes of two operands do not fit");
        sizes[rank - i] = a == 1 ? b : a;
    }
    noyau_cells all = noyau_read(stretched(x));
    const noyau_cells others = noyau_read(stretched(y));
    for (size_t i = 0; i < all.cells.size(); ++i) all.cells[i] = f(all.cells[i], others.cells[i]);
    return noyau_made(all, type, x);
}
/* Applies f to each slice along an axis, as a vector; the result is one number, or as many as in the slice. */
template <class F> noyau_cells noyau_along(const Tensor &x, int64_t axis, bool keeps, F f) {
    const noyau_cells all = noyau_read(x);
    const int64_t at = x.wrapped(axis), count = all.along(at), step = all.behind(at), whole = (int64_t)all.cells.size();
    noyau_cells made{all.sizes, std::vector<noyau_real>((size_t)(keeps || !count ? whole : whole / count))};
    if (!keeps) made.sizes[(size_t)at] = 1;
    for (int64_t first = 0; count && first < whole; ++first) {
        if (first / step % count) continue;
        std::vector<noyau_real> slice;
        for (int64_t i = 0; i < count; ++i) slice.push_back(all.cells[(size_t)(first + i * step)]);
        f(slice);
        const int64_t place = keeps ? first : first / (step * count) * step + first % step;
        for (int64_t i = 0; i < (keeps ? count : 1); ++i) made.cells[(size_t)(place + i * step)] = slice[(size_t)i];
    }
    return made;
}
template <class F> Tensor noyau_reduced(const Tensor &x, IntArrayRef axes, bool keepdim, ScalarType type, F f) {
    Tensor made = x;
    for (int64_t axis : axes) made = noyau_made(noyau_along(made, axis, false, f), type, x);
    noyau_numbers left;
    for (int64_t i = 0; i < x.dim(); ++i)
        if (keepdim || std::none_of(axes.begin(), axes.end(), [&](int64_t axis) { return x.wrapped(axis) == i; })) left.push_back(made.its_sizes[(size_t)i]);
    return made.view(left);
}
#define NOYAU_OVER(slice) noyau_real all = 0; for (noyau_real each : slice) all += each;
inline void noyau_sum_of(std::vector<noyau_real> &slice) { NOYAU_OVER(slice) slice[0] = all; }
inline void noyau_mean_of(std::vector<noyau_real> &slice) { NOYAU_OVER(slice) slice[0] = all / (noyau_real)slice.size(); }
inline bool noyau_wins(noyau_real x, noyau_real best, bool most) { return std::isnan(x) || (most ? x > best : x < best); }
inline void noyau_best_of(std::vector<noyau_real> &slice, bool most, bool place) {
    size_t best = 0;
    for (size_t i = 1; i < slice.size() && !std::isnan(slice[best]); ++i) best = noyau_wins(slice[i], slice[best], most) ? i : best;
    slice[0] = place ? (noyau_real)best : slice[best];
}
inline void noyau_softmax_of(std::vector<noyau_real> &slice, bool in_log) {
    const noyau_real most = *std::max_element(slice.begin(), slice.end());
    noyau_real all = 0;
    for (noyau_real each : slice) all += std::exp(each - most);
    for (auto &each : slice) each = in_log ? each - most - std::log(all) : std::exp(each - most) / all;
}
inline ScalarType noyau_sum_type(const Tensor &x) { return x.is_floating_point() ? x.its_type : ScalarType::Long; }

#define NOYAU_DEFINE_UNARY(name, type, of)                                                                            \
    NOYAU_CALLED inline Tensor name(const Tensor &x) { return noyau_map(x, type, [](noyau_real v) -> noyau_real { return of; }); } \
    inline Tensor Tensor::name() const { return at::name(*this); }                                                    \
    inline Tensor Tensor::name##_() const { return copy_(at::name(*this).to(its_type)); }
NOYAU_UNARIES(NOYAU_DEFINE_UNARY)
#define NOYAU_DEFINE_BINARY(name, type, of)                                                                           \
    NOYAU_CALLED inline Tensor name(const Tensor &x, const Tensor &y) { return noyau_zip(x, y, type, [](noyau_real v, noyau_real w) -> noyau_real { return of; }); } \
    NOYAU_CALLED inline Tensor name(const Tensor &x, double w) {                                                      \
        const bool is_whole = w == (double)(int64_t)w && !x.is_floating_point();                                      \
        return noyau_map(x, is_whole ? type : noyau_float(x), [w](noyau_real v) -> noyau_real { return of; });        \
    }                                                                                                                 \
    inline Tensor Tensor::name(const Tensor &y) const { return at::name(*this, y); }                                  \
    inline Tensor Tensor::name(double y) const { return at::name(*this, y); }                                         \
    inline Tensor Tensor::name##_(const Tensor &y) const { return copy_(at::name(*this, y).to(its_type)); }           \
    inline Tensor Tensor::name##_(double y) const { return copy_(at::name(*this, y).to(its_type)); }
NOYAU_BINARIES(NOYAU_DEFINE_BINARY)
#define NOYAU_SIGN(sign, name)                                                                   \
    inline Tensor operator sign(const Tensor &x, const Tensor &y) { return name(x, y); }         \
    inline Tensor operator sign(const Tensor &x, double y) { return name(x, y); }                \
    inline Tensor operator sign(double x, const Tensor &y) { return name(full(y.its_sizes, x, TensorOptions(noyau_float(y), y.on_gpu)), y.to(noyau_float(y))); } \
    template <class T> Tensor &operator sign##=(Tensor &x, const T &y) { return x.name##_(y), x; }
NOYAU_SIGN(+, add) NOYAU_SIGN(-, sub) NOYAU_SIGN(*, mul) NOYAU_SIGN(/, div)
inline Tensor operator-(const Tensor &x) { return neg(x); }

#define NOYAU_DEFINE_FOLD(name, type, of)                                                                             \
    NOYAU_CALLED inline Tensor name(const Tensor &x, IntArrayRef axes, bool keepdim = false) { return noyau_reduced(x, axes, keepdim, type, of); } \
    NOYAU_CALLED inline Tensor name(const Tensor &x, int64_t axis, bool keepdim = false) { return name(x, IntArrayRef{axis}, keepdim); } \
    NOYAU_CALLED inline Tensor name(const Tensor &x) { return name(x.flatten(), IntArrayRef{0}); }                    \
    inline Tensor Tensor::name(IntArrayRef axes, bool keepdim) const { return at::name(*this, axes, keepdim); }       \
    inline Tensor Tensor::name(int64_t axis, bool keepdim) const { return at::name(*this, axis, keepdim); }           \
    inline Tensor Tensor::name() const { return at::name(*this); }
NOYAU_FOLDS(NOYAU_DEFINE_FOLD)
#define NOYAU_DEFINE_BEST(name, most)                                                                                 \
    inline Tensor arg##name(const Tensor &x, int64_t axis, bool keepdim = false) {                                    \
        return noyau_reduced(x, IntArrayRef{axis}, keepdim, ScalarType::Long, [](auto &slice) { noyau_best_of(slice, most, true); }); \
    }                                                                                                                 \
    inline Tensor Tensor::name() const { return at::a##name(*this); }                                                     \
    inline std::tuple<Tensor, Tensor> Tensor::name(int64_t axis, bool keepdim) const {                                \
        return {at::a##name(*this, axis, keepdim), at::arg##name(*this, axis, keepdim)};                                      \
    }                                                                                                                 \
    inline Tensor Tensor::arg##name(int64_t axis, bool keepdim) const { return at::arg##name(*this, axis, keepdim); } \
    template <class... T> auto name(const Tensor &x, T... rest) { return x.name(rest...); }
NOYAU_DEFINE_BEST(max, true) NOYAU_DEFINE_BEST(min, false)
#define NOYAU_DEFINE_SOFTMAX(name, in_log)                                                                            \
    NOYAU_CALLED inline Tensor name(const Tensor &x, int64_t axis) {                                                  \
        return noyau_made(noyau_along(x, axis, true, [](auto &slice) { noyau_softmax_of(slice, in_log); }), noyau_float(x), x); \
    }                                                                                                                 \
    inline Tensor Tensor::name(int64_t axis) const { return at::name(*this, axis); }
NOYAU_DEFINE_SOFTMAX(softmax, false) NOYAU_DEFINE_SOFTMAX(log_softmax, true)
inline Tensor clamp(const Tensor &x, std::optional<double> low, std::optional<double> high = {}) {
    return noyau_map(x, x.its_type, [&](noyau_real v) { return low && v < *low ? *low : high && v > *high ? *high : v; });
}
inline Tensor Tensor::clamp(std::optional<double> low, std::optional<double> high) const { return at::clamp(*this, low, high); }
inline Tensor clamp_min(const Tensor &x, double low) { return clamp(x, low); }

/* Products of the last two axes, for each index of the axes before, which are the same or missing. */
NOYAU_CALLED inline Tensor matmul(const Tensor &x, const Tensor &y) {
    if (x.dim() == 1) return matmul(x.unsqueeze(0), y).squeeze(y.dim() == 1 ? 0 : -2);
    if (y.dim() == 1) return matmul(x, y.unsqueeze(1)).squeeze(-1);
    noyau_require_alike(x, y);
    const noyau_cells left = noyau_read(x), right = noyau_read(y);
    const int64_t rows = x.size(-2), depth = x.size(-1), cols = y.size(-1);
    if (y.size(-2) != depth) throw std::runtime_error("the shapes of two matrices do not fit");
    const auto batch = [](const Tensor &of) { return noyau_numbers(of.its_sizes.begin(), of.its_sizes.end() - 2); };
    if (x.dim() > 2 && y.dim() > 2 && batch(x) != batch(y)) throw noyau_lack("products of stacks of two shapes are not computed here");
    noyau_cells made{batch(x.dim() > 2 ? x : y), {}};
    const int64_t count = std::accumulate(made.sizes.begin(), made.sizes.end(), (int64_t)1, std::multiplies<int64_t>());
    for (int64_t n = 0; n < count; ++n)
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < cols; ++j) {
                const int64_t a = (x.dim() > 2 ? n : 0) * rows * depth + i * depth, b = (y.dim() > 2 ? n : 0) * depth * cols + j;
                noyau_real all = 0;
                for (int64_t k = 0; k < depth; ++k) all += left.cells[(size_t)(a + k)] * right.cells[(size_t)(b + k * cols)];
                made.cells.push_back(all);
            }
    made.sizes.push_back(rows), made.sizes.push_back(cols);
    return noyau_made(made, x.its_type, x);
}
inline Tensor Tensor::matmul(const Tensor &y) const { return at::matmul(*this, y); }
inline Tensor Tensor::mm(const Tensor &y) const { return at::matmul(*this, y); }
inline Tensor Tensor::bmm(const Tensor &y) const { return at::matmul(*this, y); }
inline Tensor mm(const Tensor &x, const Tensor &y) { return matmul(x, y); }
inline Tensor bmm(const Tensor &x, const Tensor &y) { return matmul(x, y); }
inline Tensor addmm(const Tensor &z, const Tensor &x, const Tensor &y) { return add(matmul(x, y), z); }
inline Tensor linear(const Tensor &x, const Tensor &weight, std::optional<Tensor> bias = {}) {
    const Tensor made = matmul(x, weight.t());
    return bias && bias->defined() ? add(made, *bias) : made;
}
inline Tensor cat(const std::vector<Tensor> &parts, int64_t axis = 0) {
    noyau_numbers sizes = parts.at(0).its_sizes;
    const int64_t at = parts[0].wrapped(axis);
    sizes[(size_t)at] = 0;
    for (const Tensor &each : parts) noyau_require_alike(parts[0], each), sizes[(size_t)at] += each.size(at);
    const Tensor made = empty(sizes, parts[0].options());
    int64_t start = 0;
    for (const Tensor &each : parts) made.narrow(at, start, each.size(at)).copy_(each), start += each.size(at);
    return made;
}
inline Tensor stack(std::vector<Tensor> parts, int64_t axis = 0) {
    for (Tensor &each : parts) each = each.unsqueeze(axis);
    return cat(parts, axis < 0 ? axis + parts.at(0).dim() : axis);
}
} // namespace at
#endif
