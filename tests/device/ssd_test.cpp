// The state space model with one decay per head (family Ssd) against its recurrence and the adjoint of that,
// written out token by token in double: properties N3 to N8 of the specification. Values on a device come
// from chunks of any length, from passes on kept states, and from any number of threads.
#include "device_test.hpp"

#include <tenon/sdk/ops/ssd.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::testing::ssd_test {
namespace {

constexpr DType kActivations[] = {DType::kF32, DType::kF64, DType::kBF16};

/// Sizes of a problem; chunk and dtype vary.
struct Sizes {
  std::int64_t batch, time, heads, head_width, groups, state;
};
// Extents that are no multiples of registers or tiles, and some that are; fewer groups than heads.
const Sizes kSizes[] = {{2, 1, 2, 3, 1, 2},   {1, 7, 4, 5, 2, 3},     {2, 64, 3, 8, 1, 16},
                        {1, 65, 6, 20, 3, 9}, {2, 200, 2, 16, 2, 33}, {1, 70, 2, 66, 1, 130}};

/// Inputs of a call as doubles that the dtype represents, and gradients of its results.
struct Problem {
  SsdSpec spec;
  std::vector<double> xbc, projected, a_log, dt_bias, d, documents, initial, dy, dlast;

  std::int64_t per_group() const { return spec.heads / spec.groups; }
  std::int64_t size() const { return spec.state * spec.head_width; }
  std::int64_t group_columns() const { return per_group() * spec.head_width + 2 * spec.state; }
  /// Where x of a head, and B and C of its group begin in xbc.
  std::int64_t x_at(std::int64_t row, std::int64_t h) const {
    return row * spec.xbc_columns() + h / per_group() * group_columns() + h % per_group() * spec.head_width;
  }
  std::int64_t b_at(std::int64_t row, std::int64_t h) const {
    return row * spec.xbc_columns() + h / per_group() * group_columns() + per_group() * spec.head_width;
  }
  std::int64_t c_at(std::int64_t row, std::int64_t h) const { return b_at(row, h) + spec.state; }
  std::int64_t step_at(std::int64_t row, std::int64_t h) const {
    std::int64_t left = h;
    for (const ColumnRun& run : spec.steps) {
      if (left < run.width) return row * spec.columns + run.first + left;
      left -= run.width;
    }
    return -1;
  }
  /// Whether the state is zero before a position because another document ends there.
  bool begins(std::int64_t b, std::int64_t t) const {
    const std::int64_t row = b * spec.time + t;
    return !documents.empty() && t > 0 && documents[row] != documents[row - 1];
  }
};

/// Steps in several runs that stand in another order than they are joined in, with columns between them.
ColumnRuns steps_of(std::int64_t heads) {
  const std::int64_t first = heads / 2;
  return {{heads - first + 3, first}, {0, 0}, {2, heads - first}};
}

/// Documents of about nine places.
std::vector<double> make_documents(std::int64_t batch, std::int64_t time, const std::string& name) {
  std::vector<double> documents = integers(batch * time, 9, name);
  for (std::int64_t row = 0; row < batch; ++row) {
    double number = -3;
    for (std::int64_t t = 0; t < time; ++t) {
      double& at = documents[row * time + t];
      at = number += at == 0 ? 2 : 0;
    }
  }
  return documents;
}

Problem make_problem(const Sizes& sizes, DType dtype, bool documents, bool initial, int seed = 0) {
  Problem p;
  p.spec.batch = sizes.batch, p.spec.time = sizes.time;
  p.spec.heads = sizes.heads, p.spec.head_width = sizes.head_width;
  p.spec.groups = sizes.groups, p.spec.state = sizes.state;
  p.spec.columns = sizes.heads + 5;
  p.spec.steps = steps_of(sizes.heads);
  p.spec.dtype = dtype;
  const std::string name = "ssd " + std::to_string(seed) + " ";
  const std::int64_t places = sizes.batch * sizes.time, states = sizes.batch * sizes.heads * p.size();
  const DType a = arithmetic(dtype);
  p.xbc = numbers(places * p.spec.xbc_columns(), name + "xbc", dtype);
  p.projected = numbers(places * p.spec.columns, name + "projected", dtype);
  p.dt_bias = numbers(sizes.heads, name + "dt_bias", a);
  p.d = numbers(sizes.heads, name + "d", a);
  // Decays from a few places to many.
  p.a_log = numbers(sizes.heads, name + "a_log", a);
  if (documents) p.documents = make_documents(sizes.batch, sizes.time, name + "documents");
  if (initial) p.initial = numbers(states, name + "initial", a);
  p.dy = numbers(places * sizes.heads * sizes.head_width, name + "dy", dtype);
  p.dlast = numbers(states, name + "dlast", a);
  return p;
}

/// What a call gives; the oracle's and a device's.
struct Results {
  std::vector<double> y, states, last;
  std::vector<double> xbc, projected, a_log, dt_bias, d, initial;  ///< gradients
};

struct Step {
  double raw, delta, decay;
  bool clamped;
};
Step step_of(const Problem& p, std::int64_t row, std::int64_t h) {
  Step s{};
  s.raw = p.projected[p.step_at(row, h)] + p.dt_bias[h];
  const double free = s.raw > 40 ? s.raw : std::log1p(std::exp(s.raw));
  s.delta = free;
  if (p.spec.dt_min > 0) s.delta = std::max(s.delta, p.spec.dt_min);
  if (p.spec.dt_max > 0) s.delta = std::min(s.delta, p.spec.dt_max);
  s.clamped = s.delta != free;
  s.decay = std::exp(-s.delta * std::exp(p.a_log[h]));
  return s;
}

/// H of one head before every position and after the last.
std::vector<double> all_states(const Problem& p, std::int64_t b, std::int64_t h) {
  const std::int64_t size = p.size(), width = p.spec.head_width;
  std::vector<double> all((p.spec.time + 1) * size, 0.0);
  if (!p.initial.empty()) std::copy_n(p.initial.begin() + (b * p.spec.heads + h) * size, size, all.begin());
  for (std::int64_t t = 0; t < p.spec.time; ++t) {
    const std::int64_t row = b * p.spec.time + t;
    const Step s = step_of(p, row, h);
    for (std::int64_t i = 0; i < size; ++i) {
      const double before = p.begins(b, t) ? 0 : all[t * size + i];
      all[(t + 1) * size + i] =
          s.decay * before + p.xbc[p.b_at(row, h) + i / width] * s.delta * p.xbc[p.x_at(row, h) + i % width];
    }
  }
  return all;
}

void forward_of_head(const Problem& p, const std::vector<double>& all, std::int64_t b, std::int64_t h,
                     Results& r) {
  const std::int64_t size = p.size(), width = p.spec.head_width, heads = p.spec.heads;
  for (std::int64_t t = 0; t < p.spec.time; ++t) {
    const std::int64_t row = b * p.spec.time + t;
    for (std::int64_t j = 0; j < width; ++j) {
      double sum = p.d[h] * p.xbc[p.x_at(row, h) + j];
      for (std::int64_t n = 0; n < p.spec.state; ++n)
        sum += all[(t + 1) * size + n * width + j] * p.xbc[p.c_at(row, h) + n];
      r.y[(row * heads + h) * width + j] = sum;
    }
    if (t % p.spec.chunk == 0)
      std::copy_n(all.begin() + t * size, size,
                  r.states.begin() + ((b * p.spec.chunks() + t / p.spec.chunk) * heads + h) * size);
  }
  std::copy_n(all.begin() + p.spec.time * size, size, r.last.begin() + (b * heads + h) * size);
}

void backward_of_head(const Problem& p, const std::vector<double>& all, std::int64_t b, std::int64_t h,
                      Results& r) {
  const std::int64_t size = p.size(), width = p.spec.head_width, heads = p.spec.heads;
  std::vector<double> dh(size, 0.0);
  if (!p.dlast.empty()) std::copy_n(p.dlast.begin() + (b * heads + h) * size, size, dh.begin());
  for (std::int64_t t = p.spec.time - 1; t >= 0; --t) {
    const std::int64_t row = b * p.spec.time + t, x = p.x_at(row, h), bs = p.b_at(row, h),
                       cs = p.c_at(row, h);
    const Step s = step_of(p, row, h);
    const bool begins = p.begins(b, t);
    const double* const dy = p.dy.data() + (row * heads + h) * width;
    double ddecay = 0, ddelta = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t n = i / width, j = i % width;
      r.xbc[cs + n] += all[(t + 1) * size + i] * dy[j];
      dh[i] += p.xbc[cs + n] * dy[j];
      r.xbc[bs + n] += dh[i] * s.delta * p.xbc[x + j];
      r.xbc[x + j] += dh[i] * p.xbc[bs + n] * s.delta;
      ddelta += dh[i] * p.xbc[bs + n] * p.xbc[x + j];
      ddecay += begins ? 0 : dh[i] * all[t * size + i];
      dh[i] = begins ? 0 : dh[i] * s.decay;
    }
    for (std::int64_t j = 0; j < width; ++j) {
      r.xbc[x + j] += p.d[h] * dy[j];
      r.d[h] += dy[j] * p.xbc[x + j];
    }
    const double rate = -std::exp(p.a_log[h]);
    ddelta += ddecay * s.decay * rate;
    r.a_log[h] += ddecay * s.decay * s.delta * rate;
    const double draw = s.clamped ? 0 : ddelta / (1 + std::exp(-s.raw));
    r.projected[p.step_at(row, h)] = draw;
    r.dt_bias[h] += draw;
  }
  std::copy_n(dh.begin(), size, r.initial.begin() + (b * heads + h) * size);
}

Results oracle(const Problem& p, bool gradients = true) {
  const std::int64_t heads = p.spec.heads, states = p.spec.batch * heads * p.size();
  Results r;
  r.y.resize(p.dy.size()), r.last.resize(states), r.states.resize(states * p.spec.chunks());
  r.xbc.resize(p.xbc.size()), r.projected.resize(p.projected.size()), r.initial.resize(states);
  r.a_log.resize(heads), r.dt_bias.resize(heads), r.d.resize(heads);
  for (std::int64_t b = 0; b < p.spec.batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::vector<double> all = all_states(p, b, h);
      forward_of_head(p, all, b, h, r);
      if (gradients) backward_of_head(p, all, b, h, r);
    }
  return r;
}

std::string text_of(const Problem& p) {
  const SsdSpec& s = p.spec;
  return std::string(dtype_name(s.dtype)) + " batch " + std::to_string(s.batch) + " time " +
         std::to_string(s.time) + " heads " + std::to_string(s.heads) + " of " +
         std::to_string(s.head_width) + " groups " + std::to_string(s.groups) + " state " +
         std::to_string(s.state) + " chunk " + std::to_string(s.chunk) +
         (p.documents.empty() ? "" : " documents") + (p.initial.empty() ? "" : " initial");
}

/// Relative to the largest element: of results, and of gradients.
double bound(DType dtype) {
  return dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 1e-4 : 4 * unit(DType::kBF16);
}
double gradient_bound(DType dtype) {
  return dtype == DType::kF64 ? 1e-11 : dtype == DType::kF32 ? 2e-4 : 4 * unit(DType::kBF16);
}

/// Which of the optional tensors a call has.
struct Wanted {
  bool states = true, last = true, parameters = true, initial = true, accumulate = false;
};

class SsdFamily : public OnEveryChoice {
 protected:
  Ssd& family() { return device_.family<Ssd>(); }

  Owned scratch(std::size_t bytes) { return {device_, Shape{static_cast<std::int64_t>(bytes)}, DType::kU8}; }

  /// The tensors of a problem on the device.
  struct Inputs {
    Inputs(Device& device, const Problem& p)
        : xbc(device, {p.spec.batch, p.spec.time, p.spec.xbc_columns()}, p.spec.dtype, p.xbc),
          projected(device, {p.spec.batch, p.spec.time, p.spec.columns}, p.spec.dtype, p.projected),
          a_log(device, {p.spec.heads}, arithmetic(p.spec.dtype), p.a_log),
          dt_bias(device, {p.spec.heads}, arithmetic(p.spec.dtype), p.dt_bias),
          d(device, {p.spec.heads}, arithmetic(p.spec.dtype), p.d) {
      if (!p.documents.empty())
        documents =
            std::make_unique<Owned>(device, Shape{p.spec.batch, p.spec.time}, DType::kI32, p.documents);
      if (!p.initial.empty())
        initial = std::make_unique<Owned>(device, states(p.spec), arithmetic(p.spec.dtype), p.initial);
    }
    static Shape states(const SsdSpec& s) { return {s.batch, s.heads, s.state, s.head_width}; }
    operator SsdInputs() const {
      return {xbc,
              projected,
              a_log,
              dt_bias,
              d,
              documents == nullptr ? TensorView{} : TensorView(*documents),
              initial == nullptr ? TensorView{} : TensorView(*initial)};
    }  // NOLINT(google-explicit-constructor): an argument of calls
    Owned xbc, projected, a_log, dt_bias, d;
    std::unique_ptr<Owned> documents, initial;
  };

  /// forward() and, unless it has no states, backward(). What is added to is 0.5; columns of the projection
  /// that are no steps have 7 and must keep it.
  Results run(const Problem& p, const Wanted& wanted = {}) {
    const SsdSpec& s = p.spec;
    const DType a = arithmetic(s.dtype);
    const auto kernel = family().prepare(s);
    const Inputs in(device_, p);
    const Owned room = scratch(kernel->scratch_bytes());
    const Owned y(device_, {s.batch, s.time, s.heads * s.head_width}, s.dtype),
        states(device_, {s.batch, s.chunks(), s.heads, s.state, s.head_width}, a),
        last(device_, Inputs::states(s), a);
    kernel->forward(in, y, wanted.states ? states : TensorView{}, wanted.last ? last : TensorView{}, room);
    Results r;
    r.y = y.values();
    if (wanted.last) r.last = last.values();
    if (!wanted.states) return r;
    r.states = states.values();
    const Owned again = scratch(kernel->scratch_bytes());  // nothing is kept in it between calls
    const std::vector<double> old(s.heads, 0.5);
    const Owned dy(device_, {s.batch, s.time, s.heads * s.head_width}, s.dtype, p.dy),
        xbc(device_, {s.batch, s.time, s.xbc_columns()}, s.dtype),
        projected(device_, {s.batch, s.time, s.columns}, s.dtype,
                  std::vector<double>(p.projected.size(), 7.0)),
        a_log(device_, {s.heads}, a, old), dt_bias(device_, {s.heads}, a, old), d(device_, {s.heads}, a, old),
        initial(device_, Inputs::states(s), a);
    std::unique_ptr<Owned> dlast;
    if (!p.dlast.empty()) dlast = std::make_unique<Owned>(device_, Inputs::states(s), a, p.dlast);
    SsdGradients gradients;
    gradients.xbc = xbc, gradients.projected = projected, gradients.accumulate = wanted.accumulate;
    if (wanted.parameters) gradients.a_log = a_log, gradients.dt_bias = dt_bias, gradients.d = d;
    if (wanted.initial) gradients.initial = initial;
    kernel->backward(in, states, dy, dlast == nullptr ? TensorView{} : TensorView(*dlast), gradients, again);
    r.xbc = xbc.values(), r.projected = projected.values();
    r.a_log = a_log.values(), r.dt_bias = dt_bias.values(), r.d = d.values();
    if (wanted.initial) r.initial = initial.values();
    return r;
  }

  static void expect_forward(const Problem& p, const Results& found, const Results& expected) {
    const std::string what = text_of(p);
    EXPECT_LE(relative_error(found.y, expected.y), bound(p.spec.dtype)) << "y: " << what;
    const double of_states = bound(arithmetic(p.spec.dtype));
    EXPECT_LE(relative_error(found.last, expected.last), of_states) << "last: " << what;
    EXPECT_LE(relative_error(found.states, expected.states), of_states) << "states: " << what;
  }
  static void expect_gradients(const Problem& p, const Results& found, const Results& expected,
                               double limit) {
    const std::string what = text_of(p);
    const auto compare = [&](const char* name, const std::vector<double>& a, const std::vector<double>& b) {
      EXPECT_LE(relative_error(a, b), limit) << "gradient of " << name << ": " << what;
    };
    compare("xbc", found.xbc, expected.xbc);
    std::vector<double> steps, expected_steps, others;
    for (std::int64_t row = 0; row < p.spec.batch * p.spec.time; ++row) {
      std::vector<bool> is_step(p.spec.columns, false);
      for (std::int64_t h = 0; h < p.spec.heads; ++h) {
        const std::int64_t at = p.step_at(row, h);
        steps.push_back(found.projected[at]), expected_steps.push_back(expected.projected[at]);
        is_step[at - row * p.spec.columns] = true;
      }
      for (std::int64_t c = 0; c < p.spec.columns; ++c)
        if (!is_step[c]) others.push_back(found.projected[row * p.spec.columns + c]);
    }
    compare("steps", steps, expected_steps);
    EXPECT_EQ(others, std::vector<double>(others.size(), 7.0)) << "columns that are no steps: " << what;
    compare("a_log", found.a_log, expected.a_log);
    compare("dt_bias", found.dt_bias, expected.dt_bias);
    compare("d", found.d, expected.d);
    compare("initial", found.initial, expected.initial);
  }
};

std::vector<std::int64_t> chunks_of(std::int64_t time) {
  std::vector<std::int64_t> chunks{1, 16, 64, time};
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  return chunks;
}

TEST_P(SsdFamily, N3_ChunksGiveTheRecurrence) {
  for (const DType dtype : kActivations)
    for (const Sizes& sizes : kSizes)
      for (const bool documents : {false, true}) {
        Problem p = make_problem(sizes, dtype, documents, sizes.heads % 2 == 0);
        for (const std::int64_t chunk : chunks_of(sizes.time)) {
          p.spec.chunk = chunk;
          expect_forward(p, run(p), oracle(p, false));
        }
      }
}

TEST_P(SsdFamily, N4_TheChunkChangesNothing) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const bool documents : {false, true}) {
      Problem p = make_problem({2, 100, 4, 8, 2, 16}, dtype, documents, true);
      p.spec.chunk = 100;
      const Results whole = run(p);
      for (const std::int64_t chunk : {1, 16, 37, 64, 256}) {
        p.spec.chunk = chunk;
        Results part = run(p);
        EXPECT_LE(relative_error(part.y, whole.y), bound(dtype)) << text_of(p);
        EXPECT_LE(relative_error(part.last, whole.last), bound(dtype)) << text_of(p);
        part.states = whole.states;
        expect_gradients(p, part, whole, gradient_bound(dtype));
      }
    }
}

TEST_P(SsdFamily, N5_GradientsAreTheAdjointOfTheRecurrence) {
  for (const DType dtype : kActivations)
    for (const Sizes& sizes : kSizes)
      for (const bool documents : {false, true}) {
        Problem p = make_problem(sizes, dtype, documents, sizes.heads % 2 == 0, 1);
        if (documents && sizes.heads % 2 == 0) p.dlast.clear();
        const Results expected = oracle(p);
        for (const std::int64_t chunk : chunks_of(sizes.time)) {
          p.spec.chunk = chunk;
          expect_gradients(p, run(p), expected, gradient_bound(dtype));
        }
      }
}

/// <dy, y> + <dlast, last>.
double objective(const Problem& p, const Results& r) {
  return std::inner_product(p.dy.begin(), p.dy.end(), r.y.begin(), 0.0) +
         std::inner_product(p.dlast.begin(), p.dlast.end(), r.last.begin(), 0.0);
}

TEST_P(SsdFamily, N5_GradientsAreCentralDifferences) {
  for (const int seed : {2, 3})
    for (const bool documents : {false, true}) {
      Problem p = make_problem({1, 11, 4, 2, 2, 3}, DType::kF64, documents, true, seed);
      p.spec.chunk = 4;
      const Results found = run(p);
      constexpr double kStep = 1e-5;
      const auto check = [&](const char* name, std::vector<double> Problem::*input,
                             const std::vector<double>& gradient, std::size_t stride) {
        std::vector<double> differences, of;
        for (std::size_t i = 0; i < gradient.size(); i += stride) {
          Problem up = p, down = p;
          (up.*input)[i] += kStep, (down.*input)[i] -= kStep;
          differences.push_back(
              (objective(up, run(up, {.states = false})) - objective(down, run(down, {.states = false}))) /
              (2 * kStep));
          of.push_back(gradient[i]);
        }
        EXPECT_LE(relative_error(of, differences), 1e-8) << name << " of seed " << seed << ", " << text_of(p);
      };
      std::vector<double> steps = found.projected;
      for (double& step : steps)
        if (step == 7.0) step = 0;  // nothing depends on the other columns
      check("xbc", &Problem::xbc, found.xbc, 3);
      check("steps", &Problem::projected, steps, 1);
      check("a_log", &Problem::a_log, found.a_log, 1);
      check("dt_bias", &Problem::dt_bias, found.dt_bias, 1);
      check("d", &Problem::d, found.d, 1);
      check("initial", &Problem::initial, found.initial, 1);
    }
}

TEST_P(SsdFamily, N5_BoundsOfDeltaHoldAndPassNoGradient) {
  for (const DType dtype : kActivations) {
    Problem p = make_problem({2, 40, 4, 6, 2, 5}, dtype, true, true, 4);
    p.spec.chunk = 16;
    for (const auto& [low, high] : {std::pair{0.0, 0.7}, {0.4, 0.0}, {0.4, 0.7}, {0.5, 0.5}}) {
      p.spec.dt_min = low, p.spec.dt_max = high;
      const Results found = run(p), expected = oracle(p);
      EXPECT_GT(std::count(expected.projected.begin(), expected.projected.end(), 0.0), 2 * 40 * 5);
      expect_forward(p, found, expected);
      expect_gradients(p, found, expected, gradient_bound(dtype));
    }
  }
}

TEST_P(SsdFamily, AddsToGradientsOfParametersOnRequest) {
  Problem p = make_problem({2, 40, 4, 6, 2, 5}, DType::kF64, false, true, 5);
  p.spec.chunk = 16;
  const Results plain = run(p), added = run(p, {.accumulate = true});
  for (const auto member : {&Results::a_log, &Results::dt_bias, &Results::d})
    for (std::size_t h = 0; h < 4; ++h)
      EXPECT_NEAR((added.*member)[h], (plain.*member)[h] + 0.5, 1e-12 * std::abs((plain.*member)[h]) + 1e-14);
  EXPECT_EQ(added.xbc, plain.xbc);
  EXPECT_EQ(added.projected, plain.projected);
  EXPECT_EQ(added.initial, plain.initial);
}

TEST_P(SsdFamily, WritesOnlyWhatIsWanted) {
  Problem p = make_problem({2, 40, 4, 6, 2, 5}, DType::kF32, true, false, 6);
  p.spec.chunk = 16;
  const Results all = run(p), frozen = run(p, {.last = false, .parameters = false, .initial = false}),
                plain = run(p, {.states = false, .last = false});
  EXPECT_EQ(plain.y, all.y);
  EXPECT_EQ(frozen.y, all.y);
  EXPECT_EQ(frozen.xbc, all.xbc);
  EXPECT_EQ(frozen.projected, all.projected);
  for (const auto member : {&Results::a_log, &Results::dt_bias, &Results::d})
    EXPECT_EQ(frozen.*member, std::vector<double>(4, 0.5));
}

TEST_P(SsdFamily, GivesTheSameBitsWithAnyNumberOfThreads) {
  for (const DType dtype : kActivations) {
    Problem p = make_problem({2, 90, 6, 8, 3, 16}, dtype, true, true, 7);
    p.spec.chunk = 32;
    const Results one = run(p);
    for (const int threads : {2, 3}) {
      set_parallel_threads(threads);
      const Results found = run(p);
      for (const auto member :
           {&Results::y, &Results::states, &Results::last, &Results::xbc, &Results::projected,
            &Results::a_log, &Results::dt_bias, &Results::d, &Results::initial})
        EXPECT_EQ(found.*member, one.*member) << threads << " threads, " << text_of(p);
    }
    set_parallel_threads(1);
  }
}

TEST_P(SsdFamily, DoesNothingToNothing) {
  Problem p = make_problem({0, 5, 4, 6, 2, 5}, DType::kF32, false, false);
  p.dlast.clear();
  run(p);
  // Without a position the last state is the first.
  p = make_problem({2, 0, 4, 6, 2, 5}, DType::kF32, false, true);
  const Results found = run(p);
  EXPECT_EQ(found.last, p.initial);
  EXPECT_EQ(found.initial, p.dlast);
  EXPECT_EQ(found.a_log, std::vector<double>(4, 0.0));
}

// Passes on kept states.

/// The places [first, first + count) of row b of a problem, as row 0 of one of `time` places; the rest is
/// padding.
void copy_places(const Problem& p, std::int64_t b, std::int64_t first, std::int64_t count, Problem& to,
                 std::int64_t row) {
  const auto copy = [&](const std::vector<double>& from, std::int64_t columns, std::vector<double>& into) {
    std::copy_n(from.begin() + (b * p.spec.time + first) * columns, count * columns,
                into.begin() + row * to.spec.time * columns);
  };
  copy(p.xbc, p.spec.xbc_columns(), to.xbc);
  copy(p.projected, p.spec.columns, to.projected);
  if (!p.documents.empty()) copy(p.documents, 1, to.documents);
}

class SsdSteps : public SsdFamily {
 protected:
  struct Going {
    std::int64_t sequence, count;
  };

  /// y of all sequences in passes of at most `most` places after a prompt of `prompt`; rows stand in `order`.
  std::vector<double> passes(const Problem& p, std::int64_t prompt, std::int64_t most,
                             const std::vector<std::int64_t>& order) {
    const std::int64_t width = p.spec.heads * p.spec.head_width;
    std::vector<std::int64_t> done(p.spec.batch, 0);
    std::vector<double> y(p.spec.batch * p.spec.time * width, -99.0);
    SsdSpec one = p.spec;
    const std::int64_t bytes = family().prepare(one)->sequence_bytes();
    const Owned state(device_, Shape{p.spec.batch + 2, bytes}, DType::kU8);
    for (bool begun = false;; begun = true) {
      const std::int64_t time = begun || prompt == 0 ? most : prompt;
      Problem part = p;
      part.spec.batch = static_cast<std::int64_t>(order.size()), part.spec.time = time;
      const std::int64_t places = part.spec.batch * time;
      part.initial.clear();
      part.xbc.assign(places * p.spec.xbc_columns(), 1e3);  // padding
      part.projected.assign(places * p.spec.columns, 1e3);
      if (!p.documents.empty()) part.documents.assign(places, 1e6);
      std::vector<std::int64_t> first, count, kept;
      std::int64_t left = 0;
      for (std::size_t row = 0; row < order.size(); ++row) {
        const std::int64_t b = order[row];
        // One row waits for the first pass.
        const std::int64_t go = !begun && row == 1 ? 0 : std::min(time, p.spec.time - done[b]);
        copy_places(p, b, done[b], go, part, static_cast<std::int64_t>(row));
        first.push_back(done[b]), count.push_back(go), kept.push_back(b + 1);
        left += p.spec.time - done[b];
      }
      if (left == 0) return y;
      const auto kernel = family().prepare(part.spec);
      const Inputs in(device_, part);
      const Owned out(device_, {part.spec.batch, time, width}, p.spec.dtype);
      const Owned room = scratch(kernel->scratch_bytes());
      kernel->step(in, {first, count, kept}, state, out, room);
      const std::vector<double> found = out.values();
      for (std::size_t row = 0; row < order.size(); ++row) {
        const auto begin = found.begin() + static_cast<std::int64_t>(row) * time * width;
        std::copy_n(begin, count[row] * width, y.begin() + (order[row] * p.spec.time + first[row]) * width);
        EXPECT_EQ(std::count(begin + count[row] * width, begin + time * width, 0.0),
                  (time - count[row]) * width)
            << "padding of row " << row;
        done[order[row]] += count[row];
      }
    }
  }
};

TEST_P(SsdSteps, N6_PassesGiveTheWholeSequence) {
  for (const DType dtype : kActivations)
    for (const bool documents : {false, true})
      for (const Sizes& sizes : {Sizes{3, 37, 4, 6, 2, 5}, {2, 70, 2, 16, 1, 32}}) {
        Problem p = make_problem(sizes, dtype, documents, false, 8);
        p.spec.chunk = 16;
        const std::vector<double> whole = run(p, {.states = false}).y;
        std::vector<std::int64_t> order(sizes.batch), turned;
        std::iota(order.begin(), order.end(), std::int64_t{0});
        turned.assign(order.rbegin(), order.rend());
        for (const auto& [prompt, most] : {std::pair{0, 1}, {0, 13}, {20, 1}, {33, 5}, {0, 64}}) {
          set_parallel_threads(most % 3 + 1);
          const std::vector<double> found = passes(p, prompt, most, order);
          const std::string what =
              text_of(p) + ", prompt of " + std::to_string(prompt) + ", passes of " + std::to_string(most);
          EXPECT_LE(relative_error(found, whole), bound(dtype)) << what;
          if (device_.kernel_choice() == "reference") {
            EXPECT_EQ(found, whole) << what;
          }
          if (prompt == 0) {
            EXPECT_EQ(passes(p, prompt, most, turned), found) << "rows in another order, " << what;
          }
        }
      }
}

// Long passes may be computed otherwise than single places; a document may end with one, or go on.
TEST_P(SsdSteps, N6_LongPassesGoOn) {
  for (const DType dtype : kActivations) {
    Problem p = make_problem({2, 110, 4, 8, 2, 16}, dtype, true, false, 15);
    p.spec.chunk = 16;
    const auto shift = [&](std::int64_t b, double number) {
      const double by = number - p.documents[b * 110 + 40];
      for (std::int64_t t = 40; t < 110; ++t) p.documents[b * 110 + t] += by;
    };
    shift(0, p.documents[39] + 1), shift(1, p.documents[110 + 39]);
    const std::vector<double> whole = run(p, {.states = false}).y;
    for (const auto& [prompt, most] : {std::pair{0, 40}, {40, 1}, {1, 39}}) {
      const std::vector<double> found = passes(p, prompt, most, {0, 1});
      EXPECT_LE(relative_error(found, whole), bound(dtype)) << text_of(p) << ", passes of " << most;
    }
  }
}

TEST_P(SsdSteps, BeginsAgainWhateverIsKept) {
  Problem p = make_problem({2, 12, 4, 6, 2, 5}, DType::kF32, true, false, 9);
  const auto kernel = family().prepare(p.spec);
  const Owned state(device_, Shape{3, kernel->sequence_bytes()}, DType::kU8);  // NaN
  const Inputs in(device_, p);
  const Owned y(device_, {2, 12, 24}, DType::kF32), room = scratch(kernel->scratch_bytes());
  const std::int64_t first[] = {0, 0}, count[] = {12, 12}, kept[] = {2, 0};
  kernel->step(in, {first, count, kept}, state, y, room);
  const auto begun = y.bytes(), left = state.bytes();
  kernel->step(in, {first, count, kept}, state, y, room);
  EXPECT_TRUE(y.bytes() == begun);
  EXPECT_TRUE(state.bytes() == left);
  // A row of padding alone keeps what there is, and sequences of no row are left alone.
  const std::int64_t none[] = {0, 0};
  kernel->step(in, {first, none, kept}, state, y, room);
  EXPECT_TRUE(state.bytes() == left);
  const auto bytes = static_cast<std::size_t>(kernel->sequence_bytes());
  EXPECT_EQ(std::count(left.begin() + bytes, left.begin() + 2 * bytes, std::byte{0xFF}),
            static_cast<std::int64_t>(bytes));
}

// H of every head and one document: memory does not grow with the places.
TEST_P(SsdSteps, KeepsOneStatePerHead) {
  for (const DType dtype : kActivations) {
    Problem p = make_problem({2, 12, 4, 6, 2, 5}, dtype, false, false);
    const std::int64_t bytes = family().prepare(p.spec)->sequence_bytes(),
                       least = 4 * 6 * 5 * (dtype == DType::kF64 ? 8 : 4) + 4;
    EXPECT_GE(bytes, least);
    EXPECT_LE(bytes, least + 64);
    p.spec.time = 1, p.spec.batch = 7;
    EXPECT_EQ(family().prepare(p.spec)->sequence_bytes(), bytes);
  }
}

// Limits of the recurrence.

TEST_P(SsdFamily, N7_WithoutMemoryAPlaceSeesItselfAlone) {
  for (const DType dtype : kActivations) {
    Problem p = make_problem({1, 33, 2, 4, 1, 3}, dtype, false, true, 10);
    p.spec.chunk = 8;
    p.a_log.assign(2, 60);  // a decay of exp(-1e26 delta)
    const std::vector<double> y = run(p, {.states = false}).y;
    std::vector<double> expected(y.size());
    for (std::int64_t t = 0; t < 33; ++t)
      for (std::int64_t h = 0; h < 2; ++h) {
        double product = 0;
        for (std::int64_t n = 0; n < 3; ++n) product += p.xbc[p.b_at(t, h) + n] * p.xbc[p.c_at(t, h) + n];
        for (std::int64_t j = 0; j < 4; ++j)
          expected[(t * 2 + h) * 4 + j] =
              (product * step_of(p, t, h).delta + p.d[h]) * p.xbc[p.x_at(t, h) + j];
      }
    EXPECT_LE(relative_error(y, expected), bound(dtype)) << text_of(p);
  }
}

TEST_P(SsdFamily, N7_StepsOfZeroLeaveTheState) {
  for (const DType dtype : kActivations) {
    Problem p = make_problem({1, 33, 2, 4, 1, 3}, dtype, false, true, 11);
    p.spec.chunk = 8;
    p.projected.assign(p.projected.size(), -2000);
    const Results found = run(p);
    EXPECT_EQ(found.last, p.initial) << text_of(p);
    // Then only D passes anything on to x.
    for (std::int64_t t = 0; t < 33; ++t)
      for (std::int64_t i = 0; i < 8; ++i)
        EXPECT_NEAR(found.xbc[p.x_at(t, i / 4) + i % 4], p.d[i / 4] * p.dy[t * 8 + i],
                    bound(dtype) * (std::abs(p.d[i / 4] * p.dy[t * 8 + i]) + 1e-6));
  }
}

TEST_P(SsdFamily, N7_NothingSeesWhatComesLater) {
  for (const DType dtype : kActivations) {
    Problem p = make_problem({1, 50, 4, 8, 2, 16}, dtype, false, true, 12);
    p.spec.chunk = 16;
    const std::vector<double> before = run(p, {.states = false}).y;
    for (const std::int64_t t : {0, 1, 15, 16, 17, 49}) {
      Problem other = p;
      for (std::int64_t i = 0; i < p.spec.xbc_columns(); ++i) other.xbc[t * p.spec.xbc_columns() + i] = 4;
      for (std::int64_t i = 0; i < p.spec.columns; ++i) other.projected[t * p.spec.columns + i] = 3;
      const std::vector<double> after = run(other, {.states = false}).y;
      EXPECT_TRUE(std::equal(after.begin(), after.begin() + t * 32, before.begin())) << "place " << t;
      EXPECT_FALSE(std::equal(after.begin() + t * 32, after.begin() + (t + 1) * 32, before.begin() + t * 32));
    }
  }
}

TEST_P(SsdFamily, N7_ADocumentSeesItselfAlone) {
  Problem p = make_problem({1, 40, 4, 8, 2, 16}, DType::kF64, false, true, 13);
  p.documents.assign(40, 3);
  std::fill(p.documents.begin() + 21, p.documents.end(), 5);
  p.spec.chunk = 16;
  Problem other = p;
  for (std::int64_t i = 0; i < 21 * p.spec.xbc_columns(); ++i) other.xbc[i] += 1;
  other.initial.assign(p.initial.size(), 9);
  const Results a = run(p), b = run(other);
  constexpr std::int64_t kSecond = 21 * 32;  // first output of the second document
  EXPECT_TRUE(std::equal(a.y.begin() + kSecond, a.y.end(), b.y.begin() + kSecond));
  EXPECT_EQ(a.last, b.last);
}

// Sums of l within a chunk down to -1e4: exp of one is 0, and exp of their negatives would be infinite.
TEST_P(SsdFamily, N8_LongDecaysStayFinite) {
  for (const DType dtype : kActivations)
    for (const std::int64_t chunk : {16, 64, 200}) {
      Problem p = make_problem({1, 200, 3, 8, 1, 16}, dtype, chunk == 64, true, 14);
      p.spec.chunk = chunk;
      p.a_log = rounded({std::log(50.0), std::log(0.01), std::log(4.0)}, arithmetic(dtype));
      p.dt_bias = {1, -1, 0};
      // Far apart within one head, too: steps of thousands beside steps of nearly zero.
      for (std::int64_t t = 0; t < 200; t += 7) p.projected[p.step_at(t, 2)] = t % 2 == 0 ? 2048 : -64;
      double sum = 0;
      for (std::int64_t t = 0; t < 200; ++t) sum -= step_of(p, t, 0).delta * 50;
      ASSERT_LT(sum, -1e4);
      const Results found = run(p), expected = oracle(p);
      for (const auto member :
           {&Results::y, &Results::states, &Results::last, &Results::xbc, &Results::projected,
            &Results::a_log, &Results::dt_bias, &Results::d, &Results::initial})
        EXPECT_TRUE(std::all_of((found.*member).begin(), (found.*member).end(), [](double value) {
          return std::isfinite(value);
        })) << text_of(p);
      expect_forward(p, found, expected);
      expect_gradients(p, found, expected, gradient_bound(dtype));
    }
}

TEST_P(SsdFamily, RefusesSpecsThatItCannotDo) {
  const SsdSpec good = make_problem({1, 4, 6, 4, 2, 3}, DType::kF32, false, false).spec;
  const auto says = [&](auto change) {
    SsdSpec spec = good;
    change(spec);
    return message_of([&] { family().prepare(spec); });
  };
  const auto extents = [](const std::string& found) {
    return device_says("ssd needs heads, head_width, groups, state and chunk of at least 1, found " + found);
  };
  EXPECT_EQ(says([](SsdSpec&) {}), "");
  EXPECT_EQ(says([](SsdSpec& s) { s.heads = 0; }), extents("0, 4, 2, 3 and 256"));
  EXPECT_EQ(says([](SsdSpec& s) { s.head_width = 0; }), extents("6, 0, 2, 3 and 256"));
  EXPECT_EQ(says([](SsdSpec& s) { s.groups = 0; }), extents("6, 4, 0, 3 and 256"));
  EXPECT_EQ(says([](SsdSpec& s) { s.state = 0; }), extents("6, 4, 2, 0 and 256"));
  EXPECT_EQ(says([](SsdSpec& s) { s.chunk = 0; }), extents("6, 4, 2, 3 and 0"));
  EXPECT_EQ(says([](SsdSpec& s) { s.groups = 4; }),
            device_says("ssd needs groups that divide the heads, found groups 4 and heads 6"));
  EXPECT_EQ(says([](SsdSpec& s) { s.time = -1; }),
            device_says("ssd needs batch and time of at least 0, found 1 and -1"));
  EXPECT_EQ(says([](SsdSpec& s) { s.dt_min = 0.5, s.dt_max = 0.25; }),
            device_says("ssd needs 0 <= dt_min <= dt_max, where 0 is no bound, found 0.500000 and 0.250000"));
  EXPECT_EQ(says([](SsdSpec& s) {
              s.steps = {{0, 5}};
            }),
            device_says("ssd: steps: the runs have 5 columns together, expected 6"));
  EXPECT_EQ(says([](SsdSpec& s) {
              s.steps = {{6, 6}};
            }),
            device_says("ssd: steps: the run of columns [6, 12) leaves a row of 11"));
  EXPECT_EQ(says([](SsdSpec& s) {
              s.steps = {{-1, 6}};
            }),
            device_says("ssd: steps: the run of columns [-1, 5) leaves a row of 11"));
  EXPECT_EQ(says([](SsdSpec& s) {
              s.steps = {{4, 3}, {2, 3}};
            }),
            device_says("ssd: steps: the runs of columns [2, 5) and [4, 7) overlap"));
  EXPECT_THAT(says([](SsdSpec& s) { s.dtype = DType::kI8; }),
              ::testing::AllOf(::testing::HasSubstr(device_says("ssd")), ::testing::HasSubstr("i8")));
}

TEST_P(SsdFamily, RefusesTensorsThatDoNotFit) {
  const Problem p = make_problem({2, 4, 6, 4, 2, 3}, DType::kF32, true, true);
  const auto kernel = family().prepare(p.spec);
  const Inputs in(device_, p);
  const Owned y(device_, {2, 4, 24}, DType::kF32), small(device_, {2, 3}, DType::kF32),
      wide(device_, {6}, DType::kF64), room = scratch(kernel->scratch_bytes()),
                                       state(device_, Shape{3, kernel->sequence_bytes()}, DType::kU8),
                                       short_state(device_, Shape{kernel->sequence_bytes() + 1}, DType::kU8);
  const auto forward = [&](auto change) {
    SsdInputs inputs = in;
    change(inputs);
    return message_of([&] { kernel->forward(inputs, y, {}, {}, room); });
  };
  EXPECT_EQ(forward([](SsdInputs&) {}), "");
  EXPECT_THAT(forward([&](SsdInputs& i) { i.xbc = small; }),
              ::testing::HasSubstr(device_says("ssd: xbc is")));
  EXPECT_THAT(forward([&](SsdInputs& i) { i.projected = small; }), ::testing::HasSubstr("ssd: projected is"));
  EXPECT_THAT(forward([&](SsdInputs& i) { i.a_log = wide; }), ::testing::HasSubstr("ssd: a_log is f64"));
  EXPECT_THAT(forward([&](SsdInputs& i) {
                i.dt_bias = small;
                i.dt_bias.shape = {5};
              }),
              ::testing::HasSubstr("ssd: dt_bias is"));
  EXPECT_THAT(forward([&](SsdInputs& i) { i.d = {}; }), ::testing::HasSubstr("ssd: d is"));
  EXPECT_THAT(forward([&](SsdInputs& i) { i.documents = small; }), ::testing::HasSubstr("ssd: documents is"));
  EXPECT_THAT(forward([&](SsdInputs& i) { i.initial = small; }), ::testing::HasSubstr("ssd: initial is"));
  EXPECT_THAT(message_of([&] { kernel->forward(in, small, {}, {}, room); }),
              ::testing::HasSubstr("ssd: y is"));
  EXPECT_THAT(message_of([&] { kernel->forward(in, y, small, {}, room); }),
              ::testing::HasSubstr("ssd: states is"));
  EXPECT_THAT(message_of([&] { kernel->forward(in, y, {}, small, room); }),
              ::testing::HasSubstr("ssd: last is"));
  EXPECT_THAT(message_of([&] { kernel->backward(in, {}, y, {}, {}, room); }),
              ::testing::HasSubstr("ssd backward: states is"));

  using Numbers = std::vector<std::int64_t>;
  const auto step = [&](const Numbers& first, const Numbers& count, const Numbers& kept) {
    SsdInputs inputs = in;
    inputs.initial = {};
    return message_of([&] { kernel->step(inputs, {first, count, kept}, state, y, room); });
  };
  const auto says = [](const std::string& rest) { return device_says("ssd step: " + rest); };
  EXPECT_EQ(
      step({0, 0}, {4, 5}, {0, 1}),
      says("row 1 has 5 places from position 0 on, expected 0 to 4 places from a position of at least 0 on"));
  EXPECT_EQ(
      step({-1, 0}, {4, 4}, {0, 1}),
      says(
          "row 0 has 4 places from position -1 on, expected 0 to 4 places from a position of at least 0 on"));
  EXPECT_EQ(step({0, 0}, {4, 4}, {0, 3}),
            says("row 1 goes on with sequence 3, expected one of the 3 in the state"));
  EXPECT_EQ(step({0, 0}, {4, 4}, {2, 2}), says("two rows go on with sequence 2, expected one row for each"));
  EXPECT_EQ(step({0, 0}, {4, 0}, {2, 2}), "");
  EXPECT_EQ(step({0}, {4}, {2}), says("rows have 1, 1 and 1 entries (first, count, kept), expected 2 each"));
  const Numbers none{0, 0}, kept{0, 1};
  EXPECT_EQ(message_of([&] {
              kernel->step(in, {none, none, kept}, state, y, room);
            }),
            says("there is an initial state, expected none: the kept sequences have it"));
  SsdInputs inputs = in;
  inputs.initial = {};
  EXPECT_THAT(message_of([&] {
                kernel->step(inputs, {none, none, kept}, short_state, y, room);
              }),
              ::testing::HasSubstr("ssd step: state is"));
}

INSTANTIATE_TEST_SUITE_P(Device, SsdFamily, ::testing::ValuesIn(offered_choices()), choice_name);
INSTANTIATE_TEST_SUITE_P(Device, SsdSteps, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::ssd_test
