// The causal convolution over time (family CausalConvs) against its formula written out in double: values and
// gradients, with documents and without, and passes that go on with sequences.
#include "device_test.hpp"

#include <tenon/sdk/ops/ssd.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::testing::causal_conv_test {
namespace {

constexpr DType kActivations[] = {DType::kF32, DType::kF64, DType::kBF16};

struct Sizes {
  std::int64_t batch, time, width, channels;
};
const Sizes kSizes[] = {{1, 1, 4, 3},   {2, 7, 1, 5},   {2, 2, 4, 17},
                        {3, 65, 4, 33}, {1, 40, 3, 64}, {2, 9, 12, 6}};

struct Problem {
  CausalConvSpec spec;
  std::int64_t channels = 0;
  std::vector<double> x, documents, weight, bias, dy;

  std::int64_t column(std::int64_t channel) const {
    for (const ColumnRun& run : spec.channels) {
      if (channel < run.width) return run.first + channel;
      channel -= run.width;
    }
    return -1;
  }
  std::int64_t x_at(std::int64_t b, std::int64_t t, std::int64_t channel) const {
    return (b * spec.time + t) * spec.columns + column(channel);
  }
  /// Whether place t sees the one j before it.
  bool sees(std::int64_t b, std::int64_t t, std::int64_t j) const {
    return t >= j && (documents.empty() || documents[b * spec.time + t] == documents[b * spec.time + t - j]);
  }
};

Problem make_problem(const Sizes& sizes, DType dtype, DType parameter, bool documents, int seed = 0) {
  Problem p;
  p.channels = sizes.channels;
  const std::int64_t part = sizes.channels / 3;
  // Three runs, joined in another order than they stand in, with columns between them.
  p.spec.batch = sizes.batch, p.spec.time = sizes.time, p.spec.width = sizes.width;
  p.spec.columns = sizes.channels + 6;
  p.spec.channels = {{sizes.channels - 2 * part + part + 4, part},
                     {1, sizes.channels - 2 * part},
                     {sizes.channels - 2 * part + 3, part}};
  p.spec.dtype = dtype, p.spec.parameter = parameter;
  const std::string name = "conv " + std::to_string(seed) + " ";
  p.x = numbers(sizes.batch * sizes.time * p.spec.columns, name + "x", dtype);
  p.weight = numbers(sizes.channels * sizes.width, name + "weight", parameter);
  p.bias = numbers(sizes.channels, name + "bias", parameter);
  p.dy = numbers(sizes.batch * sizes.time * sizes.channels, name + "dy", dtype);
  if (documents) {
    p.documents = integers(sizes.batch * sizes.time, 5, name + "documents");
    for (std::int64_t b = 0; b < sizes.batch; ++b) {
      double number = 0;
      for (std::int64_t t = 0; t < sizes.time; ++t) {
        double& at = p.documents[b * sizes.time + t];
        at = number += at == 0 ? 3 : 0;
      }
    }
  }
  return p;
}

struct Results {
  std::vector<double> y, x, weight, bias;  ///< all but y are gradients
};

Results oracle(const Problem& p) {
  const std::int64_t k = p.spec.width, time = p.spec.time;
  Results r;
  r.y.resize(p.dy.size()), r.x.assign(p.x.size(), 7.0), r.weight.resize(p.weight.size());
  r.bias.resize(p.bias.size());
  for (std::int64_t b = 0; b < p.spec.batch; ++b)
    for (std::int64_t c = 0; c < p.channels; ++c) {
      for (std::int64_t t = 0; t < time; ++t) r.x[p.x_at(b, t, c)] = 0;
      for (std::int64_t t = 0; t < time; ++t) {
        double v = p.bias[c];
        for (std::int64_t j = 0; j < k; ++j)
          if (p.sees(b, t, j)) v += p.weight[c * k + k - 1 - j] * p.x[p.x_at(b, t - j, c)];
        const double s = 1 / (1 + std::exp(-v));
        const std::int64_t at = (b * time + t) * p.channels + c;
        r.y[at] = v * s;
        const double dv = p.dy[at] * (s + v * s * (1 - s));
        r.bias[c] += dv;
        for (std::int64_t j = 0; j < k; ++j) {
          if (!p.sees(b, t, j)) continue;
          r.weight[c * k + k - 1 - j] += dv * p.x[p.x_at(b, t - j, c)];
          r.x[p.x_at(b, t - j, c)] += dv * p.weight[c * k + k - 1 - j];
        }
      }
    }
  return r;
}

double bound(DType dtype) {
  return dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 1e-5 : 4 * unit(DType::kBF16);
}

std::string text_of(const Problem& p) {
  return std::string(dtype_name(p.spec.dtype)) + " with parameters in " +
         std::string(dtype_name(p.spec.parameter)) + ", batch " + std::to_string(p.spec.batch) + " time " +
         std::to_string(p.spec.time) + " width " + std::to_string(p.spec.width) + " channels " +
         std::to_string(p.channels) + (p.documents.empty() ? "" : " documents");
}

class CausalConvFamily : public OnEveryChoice {
 protected:
  CausalConvs& family() { return device_.family<CausalConvs>(); }

  Owned scratch(std::size_t bytes) { return {device_, Shape{static_cast<std::int64_t>(bytes)}, DType::kU8}; }

  struct Inputs {
    Inputs(Device& device, const Problem& p)
        : x(device, {p.spec.batch, p.spec.time, p.spec.columns}, p.spec.dtype, p.x),
          weight(device, {p.channels, p.spec.width}, p.spec.parameter, p.weight),
          bias(device, {p.channels}, p.spec.parameter, p.bias) {
      if (!p.documents.empty())
        numbers = std::make_unique<Owned>(device, Shape{p.spec.batch, p.spec.time}, DType::kI32, p.documents);
    }
    TensorView documents() const { return numbers == nullptr ? TensorView{} : TensorView(*numbers); }
    Owned x, weight, bias;
    std::unique_ptr<Owned> numbers;
  };

  std::vector<double> forward(const Problem& p) {
    const Inputs in(device_, p);
    const auto kernel = family().prepare(p.spec);
    const Owned y(device_, {p.spec.batch, p.spec.time, p.channels}, p.spec.dtype),
        room = scratch(kernel->scratch_bytes());
    kernel->forward(in.x, in.documents(), in.weight, in.bias, y, room);
    return y.values();
  }

  /// Columns of dx that are no channels have 7 before; gradients of parameters 0.5.
  Results run(const Problem& p, bool accumulate = false) {
    const Inputs in(device_, p);
    const auto kernel = family().prepare(p.spec);
    const Owned dy(device_, {p.spec.batch, p.spec.time, p.channels}, p.spec.dtype, p.dy),
        dx(device_, {p.spec.batch, p.spec.time, p.spec.columns}, p.spec.dtype,
           std::vector<double>(p.x.size(), 7.0)),
        dweight(device_, {p.channels, p.spec.width}, p.spec.parameter,
                std::vector<double>(p.weight.size(), 0.5)),
        dbias(device_, {p.channels}, p.spec.parameter, std::vector<double>(p.bias.size(), 0.5)),
        room = scratch(kernel->scratch_bytes());
    kernel->backward(in.x, in.documents(), in.weight, in.bias, dy, dx, dweight, dbias, accumulate, room);
    return {forward(p), dx.values(), dweight.values(), dbias.values()};
  }
};

TEST_P(CausalConvFamily, N5_ValuesAndGradientsAreThoseOfTheFormula) {
  for (const DType dtype : kActivations)
    for (const bool narrow : {false, true})
      for (const bool documents : {false, true})
        for (const Sizes& sizes : kSizes) {
          const DType parameter = narrow ? DType::kBF16 : arithmetic(dtype);
          if (narrow && dtype == DType::kF64) continue;
          const Problem p = make_problem(sizes, dtype, parameter, documents, 1);
          const Results found = run(p), expected = oracle(p);
          EXPECT_LE(relative_error(found.y, expected.y), bound(dtype)) << text_of(p);
          EXPECT_LE(relative_error(found.x, expected.x), bound(dtype)) << text_of(p);
          EXPECT_LE(relative_error(found.weight, expected.weight), bound(parameter)) << text_of(p);
          EXPECT_LE(relative_error(found.bias, expected.bias), bound(parameter)) << text_of(p);
          for (std::int64_t row = 0; row < sizes.batch * sizes.time; ++row)
            for (const std::int64_t column : {std::int64_t{0}, p.spec.columns - 1})
              EXPECT_EQ(found.x[row * p.spec.columns + column], 7.0) << "no channel: " << text_of(p);
        }
}

TEST_P(CausalConvFamily, N5_GradientsAreCentralDifferences) {
  for (const int seed : {2, 3})
    for (const bool documents : {false, true}) {
      const Problem p = make_problem({2, 8, 4, 5}, DType::kF64, DType::kF64, documents, seed);
      const Results found = run(p);
      constexpr double kStep = 1e-5;
      const auto objective = [&](const Problem& q) {
        const std::vector<double> y = forward(q);
        return std::inner_product(y.begin(), y.end(), p.dy.begin(), 0.0);
      };
      const auto check = [&](const char* name, std::vector<double> Problem::*input,
                             const std::vector<double>& gradient) {
        std::vector<double> differences;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          Problem up = p, down = p;
          (up.*input)[i] += kStep, (down.*input)[i] -= kStep;
          differences.push_back((objective(up) - objective(down)) / (2 * kStep));
        }
        EXPECT_LE(relative_error(gradient, differences), 1e-8) << name << ", seed " << seed;
      };
      std::vector<double> dx = found.x;
      for (double& value : dx)
        if (value == 7.0) value = 0;  // nothing depends on the other columns
      check("x", &Problem::x, dx);
      check("weight", &Problem::weight, found.weight);
      check("bias", &Problem::bias, found.bias);
    }
}

TEST_P(CausalConvFamily, AddsToGradientsOfParametersOnRequest) {
  const Problem p = make_problem({2, 20, 4, 9}, DType::kF64, DType::kF64, true, 4);
  const Results plain = run(p), added = run(p, true);
  for (std::size_t i = 0; i < plain.weight.size(); ++i)
    EXPECT_NEAR(added.weight[i], plain.weight[i] + 0.5, 1e-12);
  for (std::size_t i = 0; i < plain.bias.size(); ++i) EXPECT_NEAR(added.bias[i], plain.bias[i] + 0.5, 1e-12);
  EXPECT_EQ(added.x, plain.x);
}

TEST_P(CausalConvFamily, GivesTheSameBitsWithAnyNumberOfThreads) {
  for (const DType dtype : kActivations) {
    const Problem p = make_problem({3, 70, 4, 40}, dtype, arithmetic(dtype), true, 5);
    const Results one = run(p);
    for (const int threads : {2, 3}) {
      set_parallel_threads(threads);
      const Results found = run(p);
      for (const auto member : {&Results::y, &Results::x, &Results::weight, &Results::bias})
        EXPECT_EQ(found.*member, one.*member) << threads << " threads, " << text_of(p);
    }
    set_parallel_threads(1);
  }
}

TEST_P(CausalConvFamily, N7_NothingSeesWhatComesLater) {
  const Problem p = make_problem({1, 30, 4, 6}, DType::kF32, DType::kF32, false, 6);
  const std::vector<double> before = forward(p);
  for (const std::int64_t t : {0, 3, 29}) {
    Problem other = p;
    for (std::int64_t c = 0; c < 6; ++c) other.x[p.x_at(0, t, c)] += 2;
    const std::vector<double> after = forward(other);
    for (std::int64_t row = 0; row < 30; ++row)
      EXPECT_EQ(std::equal(after.begin() + row * 6, after.begin() + (row + 1) * 6, before.begin() + row * 6),
                row < t || row >= t + 4)
          << "place " << row << " after a change at " << t;
  }
}

TEST_P(CausalConvFamily, N6_PassesGiveTheBitsOfTheWholeSequence) {
  for (const DType dtype : kActivations)
    for (const bool documents : {false, true})
      for (const Sizes& sizes : {Sizes{3, 23, 4, 7}, {2, 12, 1, 5}, {2, 20, 9, 16}}) {
        const Problem p = make_problem(sizes, dtype, arithmetic(dtype), documents, 7);
        const std::vector<double> whole = forward(p);
        for (const std::int64_t most : {1, 2, 3, 5, 23}) {
          set_parallel_threads(static_cast<int>(most % 3) + 1);
          const std::int64_t bytes = family().prepare(p.spec)->sequence_bytes();
          const Owned state(device_, Shape{sizes.batch + 1, bytes}, DType::kU8);
          std::vector<std::int64_t> done(sizes.batch, 0);
          std::vector<double> found(whole.size(), -99.0);
          for (int pass = 0; *std::min_element(done.begin(), done.end()) < sizes.time; ++pass) {
            Problem part = p;
            part.spec.time = most;
            part.x.assign(sizes.batch * most * p.spec.columns, 1e3);
            if (documents) part.documents.assign(sizes.batch * most, 1e6);
            std::vector<std::int64_t> first(sizes.batch), count(sizes.batch), kept(sizes.batch);
            for (std::int64_t row = 0; row < sizes.batch; ++row) {
              const std::int64_t b = sizes.batch - 1 - row;
              // The first row takes fewer places in every other pass, and none in the first.
              const std::int64_t go = row > 0     ? most
                                      : pass == 0 ? 0
                                                  : std::max<std::int64_t>(1, most - pass % 2);
              first[row] = done[b], count[row] = std::min(go, sizes.time - done[b]), kept[row] = b + 1;
              std::copy_n(p.x.begin() + (b * sizes.time + done[b]) * p.spec.columns,
                          count[row] * p.spec.columns, part.x.begin() + row * most * p.spec.columns);
              if (documents)
                std::copy_n(p.documents.begin() + b * sizes.time + done[b], count[row],
                            part.documents.begin() + row * most);
            }
            const Inputs in(device_, part);
            const Owned y(device_, {sizes.batch, most, p.channels}, dtype);
            const auto kernel = family().prepare(part.spec);
            EXPECT_EQ(kernel->sequence_bytes(), bytes);
            kernel->step(in.x, in.documents(), in.weight, in.bias, {first, count, kept}, state, y);
            const std::vector<double> values = y.values();
            for (std::int64_t row = 0; row < sizes.batch; ++row) {
              const std::int64_t b = sizes.batch - 1 - row;
              const auto begin = values.begin() + row * most * p.channels;
              std::copy_n(begin, count[row] * p.channels,
                          found.begin() + (b * sizes.time + done[b]) * p.channels);
              EXPECT_EQ(std::count(begin + count[row] * p.channels, begin + most * p.channels, 0.0),
                        (most - count[row]) * p.channels)
                  << "padding of row " << row;
              done[b] += count[row];
            }
          }
          EXPECT_EQ(found, whole) << "passes of " << most << ", " << text_of(p);
        }
      }
  set_parallel_threads(1);
}

TEST_P(CausalConvFamily, RefusesWhatItCannotDo) {
  const Problem p = make_problem({2, 4, 4, 6}, DType::kF32, DType::kF32, true, 8);
  const auto says = [&](auto change) {
    CausalConvSpec spec = p.spec;
    change(spec);
    return message_of([&] { family().prepare(spec); });
  };
  EXPECT_EQ(says([](CausalConvSpec&) {}), "");
  EXPECT_EQ(says([](CausalConvSpec& s) { s.width = 0; }),
            device_says("causal convolution needs a width of at least 1, and batch and time of at least 0, "
                        "found 0, 2 and 4"));
  EXPECT_EQ(
      says([](CausalConvSpec& s) { s.channels = {}; }),
      device_says("causal convolution: channels: the runs have 0 columns together, expected at least 1"));
  EXPECT_EQ(says([](CausalConvSpec& s) {
              s.channels = {{10, 3}};
            }),
            device_says("causal convolution: channels: the run of columns [10, 13) leaves a row of 12"));
  EXPECT_EQ(says([](CausalConvSpec& s) {
              s.channels = {{0, 3}, {2, 1}};
            }),
            device_says("causal convolution: channels: the runs of columns [0, 3) and [2, 3) overlap"));
  EXPECT_EQ(says([](CausalConvSpec& s) { s.parameter = DType::kF64; }),
            device_says("causal convolution: parameters are f64, expected f32 or bf16 for values in f32"));
  EXPECT_THAT(
      says([](CausalConvSpec& s) { s.dtype = DType::kI8; }),
      ::testing::AllOf(::testing::HasSubstr(device_says("causal convolution")), ::testing::HasSubstr("i8")));

  const auto kernel = family().prepare(p.spec);
  const Inputs in(device_, p);
  const Owned y(device_, {2, 4, 6}, DType::kF32), small(device_, {3}, DType::kF32),
      room = scratch(kernel->scratch_bytes()), state(device_, Shape{2, kernel->sequence_bytes()}, DType::kU8);
  const auto forward = [&](const TensorView& x, const TensorView& numbers, const TensorView& weight,
                           const TensorView& bias, const TensorView& out) {
    return message_of([&] { kernel->forward(x, numbers, weight, bias, out, room); });
  };
  const auto part = [](const char* name) {
    return ::testing::HasSubstr(device_says(std::string("causal convolution: ") + name + " is"));
  };
  EXPECT_THAT(forward(small, {}, in.weight, in.bias, y), part("x"));
  EXPECT_THAT(forward(in.x, small, in.weight, in.bias, y), part("documents"));
  EXPECT_THAT(forward(in.x, {}, small, in.bias, y), part("weight"));
  EXPECT_THAT(forward(in.x, {}, in.weight, small, y), part("bias"));
  EXPECT_THAT(forward(in.x, {}, in.weight, in.bias, small), part("y"));
  const std::vector<std::int64_t> none{0, 0}, kept{0, 2}, all{4, 4};
  EXPECT_EQ(
      message_of([&] {
        kernel->step(in.x, {}, in.weight, in.bias, {none, all, kept}, state, y);
      }),
      device_says(
          "causal convolution step: row 1 goes on with sequence 2, expected one of the 2 in the state"));
}

INSTANTIATE_TEST_SUITE_P(Device, CausalConvFamily, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::causal_conv_test
