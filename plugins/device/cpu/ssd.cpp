// Operator families of Mamba-2 layers (<tenon/sdk/ops/ssd.hpp>) as plain recurrences over time, token by
// token: every split of a sequence gives the same bits.
#include "device_common/ssd.hpp"
#include "common.hpp"

#include <cmath>
#include <cstring>
#include <vector>

namespace tenon::cpu {
namespace {

using kernels::Arith;

template <class A>
A softplus(A x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}
template <class A>
A sigmoid(A x) {
  return 1 / (1 + std::exp(-x));
}

template <class S>
class CpuCausalConv final : public CausalConvKernel {
 public:
  explicit CpuCausalConv(const CausalConvSpec& spec)
      : spec_(spec), columns_(device_ssd::run_columns(spec.channels)), rows_(spec.batch) {}
  std::size_t scratch_bytes() const override { return 0; }

  void forward(TensorView x, TensorView documents, TensorView weight, TensorView bias, TensorView y,
               TensorView) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      device_ssd::conv_forward<S, P>(spec_, x, documents, weight, bias, y, device_ssd::kConv);
      for (std::int64_t b = 0; b < spec_.batch; ++b)
        for (std::int64_t t = 0; t < spec_.time; ++t)
          for (std::int64_t c = 0; c < channels(); ++c) {
            const Arith<S> v = value<P>(x, documents, weight, bias, b, t, c);
            y.as<S>()[(b * spec_.time + t) * channels() + c] = narrow<S>(v * sigmoid(v));
          }
    });
  }

  void backward(TensorView x, TensorView documents, TensorView weight, TensorView bias, TensorView dy,
                TensorView dx, TensorView dweight, TensorView dbias, bool accumulate, TensorView) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      device_ssd::conv_backward<S, P>(spec_, x, documents, weight, bias, dy, dx, dweight, dbias);
      const std::int64_t k = spec_.width;
      std::vector<Arith<S>> dv(static_cast<std::size_t>(spec_.time));
      for (std::int64_t c = 0; c < channels(); ++c) {
        std::vector<Arith<S>> dw(static_cast<std::size_t>(k), 0);
        Arith<S> db = 0;
        for (std::int64_t b = 0; b < spec_.batch; ++b) {
          for (std::int64_t t = 0; t < spec_.time; ++t) {
            const Arith<S> v = value<P>(x, documents, weight, bias, b, t, c), s = sigmoid(v);
            dv[t] = widen(dy.as<S>()[(b * spec_.time + t) * channels() + c]) * (s + v * s * (1 - s));
            db += dv[t];
            for (std::int64_t j = 0; j < k && seen(documents, b, t, j); ++j)
              dw[k - 1 - j] += dv[t] * at(x, b, t - j, c);
          }
          for (std::int64_t t = 0; t < spec_.time; ++t) {
            Arith<S> sum = 0;
            for (std::int64_t j = 0; j < k && t + j < spec_.time && seen(documents, b, t + j, j); ++j)
              sum += dv[t + j] * widen(weight.as<P>()[c * k + k - 1 - j]);
            dx.as<S>()[(b * spec_.time + t) * spec_.columns + columns_[c]] = narrow<S>(sum);
          }
        }
        const auto add = [&](P& to, Arith<S> g) { to = narrow<P>(accumulate ? widen(to) + g : g); };
        for (std::int64_t j = 0; j < k; ++j) add(dweight.as<P>()[c * k + j], dw[j]);
        add(dbias.as<P>()[c], db);
      }
    });
  }

  std::int64_t sequence_bytes() const override {
    const std::int64_t values = (spec_.width - 1) * channels() * sizeof(S);
    return device_ssd::whole_sequence((values + 3) / 4 * 4 + (spec_.width - 1) * sizeof(std::int32_t));
  }

  void step(TensorView x, TensorView documents, TensorView weight, TensorView bias, const CachedRows& rows,
            TensorView state, TensorView y) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      device_ssd::conv_forward<S, P>(spec_, x, documents, weight, bias, y, device_ssd::kConvStep);
      rows_.check(rows, spec_.time, state, sequence_bytes(), device_ssd::kConvStep);
      const std::int64_t k = spec_.width, tail = k - 1;
      for (std::int64_t b = 0; b < spec_.batch; ++b) {
        auto* const kept = state.as<std::uint8_t>() + rows.kept[b] * sequence_bytes();
        auto* const values = reinterpret_cast<S*>(kept);
        auto* const numbers =
            reinterpret_cast<std::int32_t*>(kept + (tail * channels() * sizeof(S) + 3) / 4 * 4);
        const auto document = [&](std::int64_t t) {
          if (documents.empty()) return 0;
          return t >= 0 ? documents.as<std::int32_t>()[b * spec_.time + t] : numbers[tail + t];
        };
        for (std::int64_t t = 0; t < spec_.time; ++t)
          for (std::int64_t c = 0; c < channels(); ++c) {
            S& out = y.as<S>()[(b * spec_.time + t) * channels() + c];
            if (t >= rows.count[b]) {
              out = S{};
              continue;
            }
            Arith<S> v = widen(bias.as<P>()[c]);
            for (std::int64_t j = 0; j < k && rows.first[b] + t - j >= 0; ++j) {
              if (document(t - j) != document(t)) break;
              v += widen(weight.as<P>()[c * k + k - 1 - j]) *
                   (t - j >= 0 ? at(x, b, t - j, c) : widen(values[(tail + t - j) * channels() + c]));
            }
            out = narrow<S>(v * sigmoid(v));
          }
        // In ascending order: a kept column is read before it is written.
        for (std::int64_t i = 0; i < tail; ++i) {
          const std::int64_t t = rows.count[b] - tail + i;
          if (rows.count[b] == 0 || rows.first[b] + t < 0) continue;
          const std::int32_t number = document(t);
          for (std::int64_t c = 0; c < channels(); ++c)
            values[i * channels() + c] = t >= 0
                                             ? x.as<S>()[(b * spec_.time + t) * spec_.columns + columns_[c]]
                                             : values[(tail + t) * channels() + c];
          numbers[i] = number;
        }
      }
    });
  }

 private:
  std::int64_t channels() const { return static_cast<std::int64_t>(columns_.size()); }
  Arith<S> at(const TensorView& x, std::int64_t b, std::int64_t t, std::int64_t c) const {
    return widen(x.as<S>()[(b * spec_.time + t) * spec_.columns + columns_[c]]);
  }
  bool seen(const TensorView& documents, std::int64_t b, std::int64_t t, std::int64_t j) const {
    if (t - j < 0) return false;
    if (documents.empty()) return true;
    const auto* row = documents.as<std::int32_t>() + b * spec_.time;
    return row[t - j] == row[t];
  }
  template <class P>
  Arith<S> value(const TensorView& x, const TensorView& documents, const TensorView& weight,
                 const TensorView& bias, std::int64_t b, std::int64_t t, std::int64_t c) const {
    Arith<S> v = widen(bias.as<P>()[c]);
    for (std::int64_t j = 0; j < spec_.width && seen(documents, b, t, j); ++j)
      v += widen(weight.as<P>()[c * spec_.width + spec_.width - 1 - j]) * at(x, b, t - j, c);
    return v;
  }

  CausalConvSpec spec_;
  std::vector<std::int64_t> columns_;
  device_ssd::StepRows rows_;
};

template <class S>
class CpuSsd final : public SsdKernel {
  using A = Arith<S>;

 public:
  explicit CpuSsd(const SsdSpec& spec)
      : spec_(spec), steps_(device_ssd::run_columns(spec.steps)), rows_(spec.batch) {}
  std::size_t scratch_bytes() const override { return 0; }

  void forward(const SsdInputs& in, TensorView y, TensorView states, TensorView last, TensorView) override {
    device_ssd::ssd_forward<S>(spec_, in, y, states, last);
    const std::int64_t size = spec_.state * spec_.head_width;
    std::vector<A> h(static_cast<std::size_t>(size));
    for (std::int64_t b = 0; b < spec_.batch; ++b)
      for (std::int64_t head = 0; head < spec_.heads; ++head) {
        begin(in, b, head, h);
        for (std::int64_t t = 0; t < spec_.time; ++t) {
          if (!states.empty() && t % spec_.chunk == 0)
            std::memcpy(state_of(states, b, t / spec_.chunk, head), h.data(), size * sizeof(A));
          advance(in, b, t, head, border(in, b, t), h.data(), y.as<S>());
        }
        if (!last.empty())
          std::memcpy(last.as<A>() + (b * spec_.heads + head) * size, h.data(), size * sizeof(A));
      }
  }

  void backward(const SsdInputs& in, TensorView states, TensorView dy, TensorView dlast,
                const SsdGradients& out, TensorView) override {
    device_ssd::ssd_backward<S>(spec_, in, states, dy, dlast, out);
    const std::int64_t N = spec_.state, P = spec_.head_width, size = N * P, Q = spec_.chunk;
    std::vector<A> da(spec_.heads, 0), dd(spec_.heads, 0), db(spec_.heads, 0);
    const std::int64_t per_group = spec_.heads / spec_.groups;
    std::vector<A> sums(static_cast<std::size_t>(spec_.time * 2 * N));  // of dB and dC over a group's heads
    std::vector<A> h(static_cast<std::size_t>((Q + 1) * size)), r(static_cast<std::size_t>(size));
    for (std::int64_t b = 0; b < spec_.batch; ++b)
      for (std::int64_t head = 0; head < spec_.heads; ++head) {
        if (head % per_group == 0) std::fill(sums.begin(), sums.end(), A{0});
        for (std::int64_t i = 0; i < size; ++i)
          r[i] = dlast.empty() ? A{0} : dlast.as<A>()[(b * spec_.heads + head) * size + i];
        for (std::int64_t chunk = spec_.chunks() - 1; chunk >= 0; --chunk) {
          const std::int64_t t0 = chunk * Q, t1 = std::min(spec_.time, t0 + Q);
          std::memcpy(h.data(), state_of(states, b, chunk, head), size * sizeof(A));
          for (std::int64_t t = t0; t < t1; ++t) {
            A* const now = h.data() + (t - t0 + 1) * size;
            std::memcpy(now, now - size, size * sizeof(A));
            advance(in, b, t, head, border(in, b, t), now, nullptr);
          }
          for (std::int64_t t = t1 - 1; t >= t0; --t) {
            const A *now = h.data() + (t - t0 + 1) * size, *before = now - size;
            const Place at = place(in, b, t, head);
            const bool first = border(in, b, t);
            const S* const dys = dy.as<S>() + (b * spec_.time + t) * spec_.heads * P + head * P;
            S* const dx = out.xbc.as<S>() + (at.x - in.xbc.as<S>());
            A *const dB = sums.data() + t * 2 * N, *const dC = dB + N;
            A ddelta = 0, dl = 0;
            std::vector<A> du(static_cast<std::size_t>(P), 0);
            for (std::int64_t n = 0; n < N; ++n)
              for (std::int64_t p = 0; p < P; ++p) {
                const A g = widen(dys[p]);
                dC[n] += now[n * P + p] * g;
                r[n * P + p] += widen(at.c[n]) * g;
                dB[n] += r[n * P + p] * at.delta * widen(at.x[p]);
                du[p] += r[n * P + p] * widen(at.b[n]);
                if (!first) dl += r[n * P + p] * before[n * P + p];
              }
            dl *= at.decay;
            const A d = in.d.as<A>()[head];
            for (std::int64_t p = 0; p < P; ++p) {
              const A g = widen(dys[p]), x = widen(at.x[p]);
              ddelta += x * du[p];
              dd[head] += g * x;
              dx[p] = narrow<S>(at.delta * du[p] + d * g);
            }
            const A rate = -std::exp(in.a_log.as<A>()[head]);
            ddelta += rate * dl;
            da[head] += at.delta * dl * rate;
            const A dsteps = at.clamped ? A{0} : ddelta * sigmoid(at.raw);
            db[head] += dsteps;
            out.projected.as<S>()[(b * spec_.time + t) * spec_.columns + steps_[head]] = narrow<S>(dsteps);
            for (std::int64_t i = 0; i < size; ++i) r[i] = first ? A{0} : r[i] * at.decay;
          }
        }
        if (!out.initial.empty())
          std::memcpy(out.initial.as<A>() + (b * spec_.heads + head) * size, r.data(), size * sizeof(A));
        if (head % per_group != per_group - 1) continue;
        for (std::int64_t t = 0; t < spec_.time; ++t) {
          const Place at = place(in, b, t, head);
          S* const to = out.xbc.as<S>() + (at.b - in.xbc.as<S>());
          for (std::int64_t i = 0; i < 2 * N; ++i) to[i] = narrow<S>(sums[t * 2 * N + i]);
        }
      }
    const auto put = [&](const TensorView& to, const std::vector<A>& from) {
      if (to.empty()) return;
      for (std::int64_t i = 0; i < spec_.heads; ++i)
        to.as<A>()[i] = out.accumulate ? to.as<A>()[i] + from[i] : from[i];
    };
    put(out.a_log, da), put(out.d, dd), put(out.dt_bias, db);
  }

  std::int64_t sequence_bytes() const override {
    return (spec_.heads * spec_.state * spec_.head_width * sizeof(A) + 2 * sizeof(std::int32_t) + 15) / 16 *
           16;
  }

  void step(const SsdInputs& in, const CachedRows& rows, TensorView state, TensorView y,
            TensorView) override {
    device_ssd::ssd_step<S>(spec_, in, y);
    rows_.check(rows, spec_.time, state, sequence_bytes(), device_ssd::kSsdStep);
    const std::int64_t size = spec_.state * spec_.head_width, width = spec_.heads * spec_.head_width;
    for (std::int64_t b = 0; b < spec_.batch; ++b) {
      auto* const kept = state.as<std::uint8_t>() + rows.kept[b] * sequence_bytes();
      auto* const h = reinterpret_cast<A*>(kept);
      auto* const number = reinterpret_cast<std::int32_t*>(kept + spec_.heads * size * sizeof(A));
      if (rows.first[b] == 0 && rows.count[b] > 0) std::memset(h, 0, spec_.heads * size * sizeof(A));
      const auto* const numbers =
          in.documents.empty() ? nullptr : in.documents.as<std::int32_t>() + b * spec_.time;
      for (std::int64_t t = 0; t < spec_.time; ++t) {
        if (t >= rows.count[b]) {
          std::memset(y.as<S>() + (b * spec_.time + t) * width, 0, width * sizeof(S));
          continue;
        }
        const bool first =
            numbers != nullptr && rows.first[b] + t > 0 && numbers[t] != (t > 0 ? numbers[t - 1] : *number);
        for (std::int64_t head = 0; head < spec_.heads; ++head)
          advance(in, b, t, head, first, h + head * size, y.as<S>());
      }
      if (numbers != nullptr && rows.count[b] > 0) *number = numbers[rows.count[b] - 1];
    }
  }

 private:
  struct Place {
    const S *x, *b, *c;
    A raw, delta, decay;
    bool clamped;
  };

  Place place(const SsdInputs& in, std::int64_t b, std::int64_t t, std::int64_t head) const {
    const std::int64_t per_group = spec_.heads / spec_.groups, P = spec_.head_width;
    const std::int64_t row = b * spec_.time + t, group = head / per_group;
    const S* const values =
        in.xbc.as<S>() + row * spec_.xbc_columns() + group * (per_group * P + 2 * spec_.state);
    Place at;
    at.x = values + head % per_group * P;
    at.b = values + per_group * P;
    at.c = at.b + spec_.state;
    at.raw = widen(in.projected.as<S>()[row * spec_.columns + steps_[head]]) + in.dt_bias.as<A>()[head];
    const A free = softplus(at.raw);
    at.delta = free;
    if (spec_.dt_min > 0) at.delta = std::max(at.delta, static_cast<A>(spec_.dt_min));
    if (spec_.dt_max > 0) at.delta = std::min(at.delta, static_cast<A>(spec_.dt_max));
    at.clamped = at.delta != free;
    at.decay = std::exp(-at.delta * std::exp(in.a_log.as<A>()[head]));
    return at;
  }

  bool border(const SsdInputs& in, std::int64_t b, std::int64_t t) const {
    if (in.documents.empty() || t == 0) return false;
    const auto* const numbers = in.documents.as<std::int32_t>() + b * spec_.time;
    return numbers[t] != numbers[t - 1];
  }

  void begin(const SsdInputs& in, std::int64_t b, std::int64_t head, std::vector<A>& h) const {
    if (in.initial.empty())
      std::fill(h.begin(), h.end(), A{0});
    else
      std::memcpy(h.data(), in.initial.as<A>() + (b * spec_.heads + head) * h.size(), h.size() * sizeof(A));
  }

  A* state_of(const TensorView& states, std::int64_t b, std::int64_t chunk, std::int64_t head) const {
    return states.as<A>() +
           ((b * spec_.chunks() + chunk) * spec_.heads + head) * spec_.state * spec_.head_width;
  }

  /// One position of one head; y is null where only the state is wanted.
  void advance(const SsdInputs& in, std::int64_t b, std::int64_t t, std::int64_t head, bool first, A* h,
               S* y) const {
    const std::int64_t N = spec_.state, P = spec_.head_width;
    const Place at = place(in, b, t, head);
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t p = 0; p < P; ++p)
        h[n * P + p] =
            (first ? A{0} : at.decay * h[n * P + p]) + widen(at.b[n]) * (at.delta * widen(at.x[p]));
    if (y == nullptr) return;
    S* const to = y + ((b * spec_.time + t) * spec_.heads + head) * P;
    for (std::int64_t p = 0; p < P; ++p) {
      A sum = in.d.as<A>()[head] * widen(at.x[p]);
      for (std::int64_t n = 0; n < N; ++n) sum += h[n * P + p] * widen(at.c[n]);
      to[p] = narrow<S>(sum);
    }
  }

  SsdSpec spec_;
  std::vector<std::int64_t> steps_;
  device_ssd::StepRows rows_;
};

template <class S>
class CpuGatedNorm final : public GatedNormKernel {
  using A = Arith<S>;

 public:
  explicit CpuGatedNorm(const GatedNormSpec& spec)
      : spec_(spec), gates_(device_ssd::run_columns(spec.gates)) {}
  std::size_t scratch_bytes() const override { return 0; }

  void forward(TensorView y, TensorView projected, TensorView weight, TensorView out) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      device_ssd::gated_norm_forward<S, P>(spec_, y, projected, weight, out);
      std::vector<A> v(static_cast<std::size_t>(spec_.group_width));
      each([&](std::int64_t r, std::int64_t g) {
        const A scale = gated(y, projected, r, g, v);
        for (std::int64_t j = 0; j < spec_.group_width; ++j)
          out.as<S>()[r * width() + g * spec_.group_width + j] =
              narrow<S>(widen(weight.as<P>()[g * spec_.group_width + j]) * (v[j] * scale));
      });
    });
  }

  void backward(TensorView y, TensorView projected, TensorView weight, TensorView dout, TensorView dy,
                TensorView dprojected, TensorView dweight, bool accumulate, TensorView) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      device_ssd::gated_norm_backward<S, P>(spec_, y, projected, weight, dout, dy, dprojected, dweight);
      const std::int64_t w = spec_.group_width;
      std::vector<A> v(static_cast<std::size_t>(w)), dw(static_cast<std::size_t>(width()), 0);
      each([&](std::int64_t r, std::int64_t g) {
        const A scale = gated(y, projected, r, g, v);
        A dot = 0;
        for (std::int64_t j = 0; j < w; ++j) {
          const A d = widen(dout.as<S>()[r * width() + g * w + j]);
          dw[g * w + j] += d * v[j] * scale;
          dot += d * widen(weight.as<P>()[g * w + j]) * v[j];
        }
        const A mean = dot * scale * scale / static_cast<A>(w);
        for (std::int64_t j = 0; j < w; ++j) {
          const std::int64_t at = r * width() + g * w + j;
          const A d = scale * (widen(dout.as<S>()[at]) * widen(weight.as<P>()[g * w + j]) - v[j] * mean);
          const std::int64_t column = r * spec_.columns + gates_[g * w + j];
          const A z = widen(projected.as<S>()[column]), s = sigmoid(z), x = widen(y.as<S>()[at]);
          dy.as<S>()[at] = narrow<S>(d * z * s);
          dprojected.as<S>()[column] = narrow<S>(d * x * (s + z * s * (1 - s)));
        }
      });
      for (std::int64_t j = 0; j < width(); ++j) {
        P& to = dweight.as<P>()[j];
        to = narrow<P>(accumulate ? widen(to) + dw[j] : dw[j]);
      }
    });
  }

 private:
  std::int64_t width() const { return spec_.groups * spec_.group_width; }
  template <class Body>
  void each(Body body) const {
    for (std::int64_t r = 0; r < spec_.rows; ++r)
      for (std::int64_t g = 0; g < spec_.groups; ++g) body(r, g);
  }
  /// v = y silu(z) of a group; returns 1 / its root mean square.
  A gated(const TensorView& y, const TensorView& projected, std::int64_t r, std::int64_t g,
          std::vector<A>& v) const {
    A sum = 0;
    for (std::int64_t j = 0; j < spec_.group_width; ++j) {
      const std::int64_t c = g * spec_.group_width + j;
      const A z = widen(projected.as<S>()[r * spec_.columns + gates_[c]]);
      v[j] = widen(y.as<S>()[r * width() + c]) * (z * sigmoid(z));
      sum += v[j] * v[j];
    }
    return 1 / std::sqrt(sum / static_cast<A>(spec_.group_width) + static_cast<A>(spec_.eps));
  }

  GatedNormSpec spec_;
  std::vector<std::int64_t> gates_;
};

template <class Family, class Kernel, class Spec, template <class> class Of, void (*kCheck)(const Spec&)>
class Maker final : public Family {
 public:
  explicit Maker(const char* name) : name_(name) {}
  std::unique_ptr<Kernel> prepare(const Spec& spec) override {
    kCheck(spec);
    return with_storage(spec.dtype, name_, [&](auto tag) -> std::unique_ptr<Kernel> {
      return std::make_unique<Of<typename decltype(tag)::type>>(spec);
    });
  }

 private:
  const char* name_;
};

}  // namespace

std::unique_ptr<CausalConvs> make_causal_convs() {
  return std::make_unique<
      Maker<CausalConvs, CausalConvKernel, CausalConvSpec, CpuCausalConv, device_ssd::check_causal_conv>>(
      device_ssd::kConv);
}
std::unique_ptr<Ssd> make_ssd() {
  return std::make_unique<Maker<Ssd, SsdKernel, SsdSpec, CpuSsd, device_ssd::check_ssd>>(device_ssd::kSsd);
}
std::unique_ptr<GatedNorms> make_gated_norms() {
  return std::make_unique<
      Maker<GatedNorms, GatedNormKernel, GatedNormSpec, CpuGatedNorm, device_ssd::check_gated_norm>>(
      device_ssd::kGatedNorm);
}

}  // namespace tenon::cpu
