// powersgd and sign: their approximation of a mean, the error that they carry to the next one, and the effect
// of a refused update.
#include "world.hpp"

#include <tenon/sdk/traffic.hpp>

namespace tenon::sync_test::compress_test {
namespace {

constexpr const char* kAdamW = "type = \"adamw\"\nlr = 3e-3\n";

std::string around(const std::string& decorator, const std::string& inner) {
  return "{" + decorator + ", inner = " + inner + "}";
}

/// Offsets of the tensors of the perceptron with 6 hidden units in a bucket, in the order of backward, each
/// from a multiple of 64 bytes on.
struct Place {
  std::size_t begin, rows, columns;
  std::size_t elements() const { return rows * columns; }
};
std::vector<Place> places(const Outcome& run) {
  std::vector<Place> result;
  const std::size_t line = 64 / sizeof(double);
  std::size_t end = 0;
  for (const std::size_t size : run.tensor_sizes) {
    const std::size_t rows = size == 4704 ? 6 : size;
    const Place place{end, size == 60 ? 10 : rows, size == 60 ? 6 : size / rows};
    result.push_back(place);
    end = (place.begin + size + line - 1) / line * line;
  }
  EXPECT_EQ(result.back().begin + result.back().elements(), run.replicas.at(0).own[0].size());
  return result;
}

std::vector<double> plus(std::vector<double> a, const std::vector<double>& b, double factor) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}

/// Tensor `place` of values, times `factor`.
std::vector<double> tensor(const Weights& values, const Place& place, double factor = 1) {
  std::vector<double> result(values.begin() + static_cast<std::ptrdiff_t>(place.begin),
                             values.begin() + static_cast<std::ptrdiff_t>(place.begin + place.elements()));
  for (double& value : result) value *= factor;
  return result;
}

/// The largest element of A^T B in units of |A| |B|, for matrices of `rows` rows.
double overlap(const std::vector<double>& a, const std::vector<double>& b, std::size_t rows) {
  const std::size_t columns = a.size() / rows;
  double most = 0, size_a = 0, size_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) size_a += a[i] * a[i], size_b += b[i] * b[i];
  for (std::size_t i = 0; i < columns; i += 1 + columns / 40) {
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::size_t r = 0; r < rows; ++r) sum += a[r * columns + i] * b[r * columns + j];
      most = std::max(most, std::abs(sum));
    }
  }
  return most / (std::sqrt(size_a * size_b) + 1e-300);
}

/// Distance of a matrix from rank 1: its largest minor of two rows through its largest element, relative.
double beyond_rank_one(const std::vector<double>& a, std::size_t rows) {
  const std::size_t columns = a.size() / rows;
  std::size_t top = 0;
  for (std::size_t i = 0; i < a.size(); ++i) top = std::abs(a[i]) > std::abs(a[top]) ? i : top;
  const std::size_t r0 = top / columns, c0 = top % columns;
  double most = 0;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      most =
          std::max(most, std::abs(a[top] * a[r * columns + c] - a[r0 * columns + c] * a[r * columns + c0]));
  return most / (a[top] * a[top]);
}

// With rank 1, a mean is the projection of what is due (the mean gradient and the mean of what was lost
// before) onto one direction: a matrix of rank 1 to which the remainder is orthogonal. What is due follows
// from the trace; a refused slot changes nothing, and the error does not scale with the loss.
TEST(Compress, PowersgdProjectsWhatIsDueAndCarriesTheRest) {
  for (const bool refuses : {false, true}) {
    const Outcome run =
        train(around("type = 'powersgd', start_after = 0, min_compression = 1.0", "{type = 'ddp'}"),
              {.slots = 8, .precision = refuses ? "refuses_once" : "fp64"});
    ASSERT_EQ(run.result.error, "");
    constexpr double bound = 1e-12;
    for (const Place& place : places(run)) {
      const bool whole = place.columns == 1;
      std::vector<double> lost(place.elements());
      for (std::size_t t = 0; t < 8; ++t) {
        const double unscale = !refuses ? 1 : t <= kRefused ? 1.0 / 8 : 1.0 / 4;
        std::vector<double> due = lost;
        for (int r = 0; r < 3; ++r)
          due = plus(due, tensor(run.replicas.at(r).own[t], place, unscale), 1.0 / 3);
        const std::vector<double> mean = tensor(run.replicas.at(1).mean[t], place, unscale);
        EXPECT_EQ(run.replicas.at(0).mean[t], run.replicas.at(2).mean[t]);
        const std::vector<double> rest = plus(due, mean, -1);
        if (whole) {
          for (std::size_t i = 0; i < rest.size(); ++i)
            ASSERT_NEAR(rest[i], 0, bound * (1 + std::abs(mean[i]))) << "biases travel as they are";
          continue;
        }
        EXPECT_LE(beyond_rank_one(mean, place.rows), 10 * bound) << "slot " << t;
        EXPECT_LE(overlap(mean, rest, place.rows), 10 * bound) << "slot " << t << " rows " << place.rows;
        EXPECT_GT(largest(rest), 1e-3 * largest(mean)) << "rank 1 loses something";
        if (!refuses || t != kRefused) lost = rest;
      }
    }
  }
}

// A sample's gradient of a matrix has rank 1: with one sample per replica, as many columns as replicas lose
// nothing, and more are dropped as spent.
TEST(Compress, PowersgdOfEnoughColumnsLosesNothing) {
  for (const int replicas : {2, 3}) {
    World world{.replicas = replicas, .slots = 6};
    world.model =
        "[data]\ntype = \"mnist\"\nbatch = 1\nscale = \"standard\"\n[model]\ntype = \"mlp\"\nhidden = [6]\n";
    const Outcome ddp = train("{type = 'ddp'}", world);
    for (const int rank : {replicas, replicas + 1}) {
      // Just enough columns must cover all directions: a warm start may be orthogonal to new samples.
      const Outcome run = train(
          around("type = 'powersgd', start_after = 0, min_compression = 1.0, rank = " + std::to_string(rank) +
                     (rank == replicas ? ", warm_start = false" : ""),
                 "{type = 'ddp'}"),
          world);
      ASSERT_EQ(run.result.error, "");
      EXPECT_LE(difference(run.last(), ddp.last()), 1e-9) << replicas << " replicas, rank " << rank;
      EXPECT_NE(run.last(), ddp.last());
    }
    const Outcome one =
        train(around("type = 'powersgd', start_after = 0, min_compression = 1.0", "{type = 'ddp'}"), world);
    EXPECT_GT(difference(one.last(), ddp.last()), 1e-4) << "one column is not enough";
  }
}

// A warm start follows the slot before: on gradients that hardly change, the iteration finds the direction
// that holds most of them.
TEST(Compress, AWarmStartFindsTheMainDirection) {
  const World world{
      .slots = 12, .optimizer = "type = \"sgd\"\nlr = 1e-9\n", .sets = {"run.accumulate=8", "data.batch=16"}};
  const auto lost = [&](const std::string& more) {
    const Outcome run = train(
        around("type = 'powersgd', start_after = 0, error_feedback = false" + more, "{type = 'ddp'}"), world);
    EXPECT_EQ(run.result.error, "");
    const Place place = places(run).back().elements() == 4704 ? places(run).back() : places(run)[2];
    std::vector<double> rest = tensor(run.replicas.at(0).mean[11], place, -1);
    double size = 0, whole = 0;
    for (int r = 0; r < 3; ++r) rest = plus(rest, tensor(run.replicas.at(r).own[11], place), 1.0 / 3);
    for (const double value : rest) size += value * value;
    for (const double value : tensor(run.replicas.at(0).mean[11], place)) whole += value * value;
    return size / (size + whole);
  };
  EXPECT_LT(lost(""), 0.9 * lost(", warm_start = false"));
}

// x = g + e; each replica sends s = mean |x| per tensor and signs; e becomes x - s sign(x).
TEST(Compress, SignFollowsItsFormula) {
  for (const bool refuses : {false, true}) {
    const Outcome run = train(around("type = 'sign'", "{type = 'ddp'}"),
                              {.slots = 8, .precision = refuses ? "refuses_once" : "fp64"});
    ASSERT_EQ(run.result.error, "");
    for (const Place& place : places(run)) {
      std::vector<double> error[3];
      for (auto& e : error) e.resize(place.elements());
      for (std::size_t t = 0; t < 8; ++t) {
        const double unscale = !refuses ? 1 : t <= kRefused ? 1.0 / 8 : 1.0 / 4;
        std::vector<double> mean(place.elements()), next[3];
        double scales = 0;
        for (int r = 0; r < 3; ++r) {
          const std::vector<double> x = plus(tensor(run.replicas.at(r).own[t], place, unscale), error[r], 1);
          double scale = 0;
          for (const double value : x) scale += std::abs(value) / static_cast<double>(x.size());
          next[r] = x;
          for (std::size_t i = 0; i < x.size(); ++i) {
            const double sent = x[i] < 0 ? -scale : scale;
            mean[i] += sent / 3;
            next[r][i] -= sent;
          }
          scales += scale;
        }
        const std::vector<double> seen = tensor(run.replicas.at(1).mean[t], place, unscale);
        // The scale is sent in f32; signs of values as small as its rounding may differ.
        std::size_t other = 0;
        for (std::size_t i = 0; i < seen.size(); ++i)
          other += std::abs(seen[i] - mean[i]) > 1e-5 * scales ? 1 : 0;
        EXPECT_LE(other, place.elements() / 1000) << "slot " << t << " of " << place.elements();
        if (refuses && t == kRefused) continue;
        for (int r = 0; r < 3; ++r) error[r] = next[r];
      }
    }
  }
}

// The pseudo-gradient is sent: x = anchor - weights + e, and the outer step on the mean of signs.
TEST(Compress, SignOfTheWayBackToAnAnchor) {
  constexpr double kRate = 0.5, kMomentum = 0.5;
  const Outcome run =
      train(around("type = 'sign'", "{type = 'diloco', interval = 4, outer_lr = 0.5, outer_momentum = 0.5}"),
            {.slots = 20});
  ASSERT_EQ(run.result.error, "");
  Weights anchor = run.replicas.at(0).evaluated[0], momentum(anchor.size());
  std::vector<double> error[3];
  for (auto& e : error) e.resize(anchor.size());
  for (std::size_t t = 3; t < 20; t += 4) {
    Weights mean(anchor.size());
    for (int r = 0; r < 3; ++r) {
      std::size_t begin = 0;
      for (const std::size_t size : run.tensor_sizes) {
        double scale = 0;
        std::vector<double> x(size);
        for (std::size_t i = 0; i < size; ++i) {
          x[i] = anchor[begin + i] - run.replicas.at(r).before[t][begin + i] + error[r][begin + i];
          scale += std::abs(x[i]) / static_cast<double>(size);
        }
        for (std::size_t i = 0; i < size; ++i) {
          const double sent = x[i] < 0 ? -scale : scale;
          mean[begin + i] += sent / 3;
          error[r][begin + i] = x[i] - sent;
        }
        begin += size;
      }
    }
    for (std::size_t i = 0; i < anchor.size(); ++i) {
      momentum[i] = kMomentum * momentum[i] + mean[i];
      anchor[i] -= kRate * (mean[i] + kMomentum * momentum[i]);
    }
    EXPECT_LE(difference(run.replicas.at(1).live[t], anchor), 1e-6) << "slot " << t;
    EXPECT_EQ(run.replicas.at(1).live[t], run.replicas.at(2).live[t]);
  }
}

TEST(Compress, BeforeItBeginsItIsTheStrategyWithin) {
  const World world{.slots = 10, .optimizer = kAdamW, .precision = "fp32"};
  const Outcome ddp = train("{type = 'ddp'}", world);
  for (const char* decorator : {"type = 'powersgd', start_after = 6", "type = 'sign', start_after = 6"}) {
    const Outcome run = train(around(decorator, "{type = 'ddp'}"), world);
    ASSERT_EQ(run.result.error, "");
    for (std::size_t t = 0; t < 10; ++t)
      EXPECT_EQ(run.replicas.at(1).live[t] == ddp.replicas.at(1).live[t], t < 6)
          << decorator << " slot " << t;
  }
  const World alone{.replicas = 1, .slots = 10, .optimizer = kAdamW, .precision = "fp32"};
  EXPECT_EQ(train(around("type = 'sign'", "{type = 'ddp'}"), alone).last(),
            train("{type = 'ddp'}", alone).last());
}

constexpr const char* kStrategies[] = {
    "{type = 'powersgd', start_after = 4, min_compression = 1.0, inner = {type = 'ddp'}}",
    "{type = 'powersgd', start_after = 4, rank = 2, warm_start = false, inner = {type = 'ddp'}}",
    "{type = 'powersgd', start_after = 0, inner = {type = 'diloco', interval = 3, warmup = 2}}",
    "{type = 'sign', start_after = 4, inner = {type = 'ddp', bucket_mb = 0.0}}",
    "{type = 'sign', inner = {type = 'palsgd', interval = 3, warmup = 2, p = 0.3}}"};

TEST(Compress, T16_TheSameSeedGivesTheSameBits) {
  for (const char* strategy : kStrategies) {
    const World world{.slots = 12, .optimizer = kAdamW, .precision = "fp32"};
    const Outcome first = train(strategy, world);
    ASSERT_EQ(first.result.error, "") << strategy;
    EXPECT_EQ(train(strategy, world).result.state_hash, first.result.state_hash) << strategy;
    World other = world;
    other.seed = 2;
    EXPECT_NE(train(strategy, other).result.weights_hash, first.result.weights_hash) << strategy;
  }
}

TEST(Compress, T17_ASavedRunGoesOnAsIfNothingHadHappened) {
  const World whole{.replicas = 2,
                    .slots = 12,
                    .optimizer = kAdamW,
                    .precision = "fp32",
                    .more = "[recovery]\ntype = \"full\"\nasync = false\nevery = 100\n"};
  for (const char* strategy : kStrategies) {
    const Outcome undisturbed = train(strategy, whole);
    ASSERT_EQ(undisturbed.result.error, "") << strategy;
    // Before compression begins, at its begin, and after some slots of feedback.
    for (const std::int64_t cut : {2, 4, 5, 9, 12}) {
      const integration::Scratch scratch;
      const std::string folder = (scratch / "run").string();
      World part = whole;
      part.slots = cut;
      ASSERT_EQ(train(strategy, part, folder).result.error, "");
      const Outcome resumed = train(strategy, whole, folder, true);
      EXPECT_EQ(resumed.result.error, "");
      EXPECT_EQ(resumed.result.state_hash, undisturbed.result.state_hash) << strategy << " cut at " << cut;
      EXPECT_EQ(resumed.result.weights_hash, undisturbed.result.weights_hash)
          << strategy << " cut at " << cut;
    }
  }
}

TEST(Compress, T20_EveryTensorIsTrainedAndReplicasStayEqual) {
  constexpr const char* kImages =
      "[data]\ntype = \"mnist\"\nbatch = 4\nscale = \"standard\"\n[model]\ntype = \"resnet\"\nwidth = 4\n";
  constexpr const char* kTied =
      "[data]\ntype = \"text\"\npath = \"data/text/tinyshakespeare.txt\"\ncontext = 8\nbatch = "
      "2\n[model]\ntype = \"gpt_neo\"\nlayers = 1\nwidth = 8\nheads = 2\n";
  for (const char* model : {kImages, kTied}) {
    for (const char* decorator : {"type = 'powersgd', start_after = 0", "type = 'sign'"}) {
      const Outcome run = train(around(decorator, "{type = 'ddp', bucket_mb = 0.001}"),
                                {.slots = 4, .precision = "fp32", .model = model});
      ASSERT_EQ(run.result.error, "") << decorator;
      EXPECT_GT(run.replicas.at(0).buckets[0], 1);
      const Trace& trace = run.replicas.at(0);
      EXPECT_EQ(trace.live.back(), run.last(2));
      std::size_t begin = 0;
      for (const std::size_t size : run.tensor_sizes) {
        bool moves = false;
        for (std::size_t i = begin; i < begin + size; ++i) moves |= trace.live[3][i] != trace.live[0][i];
        EXPECT_TRUE(moves) << decorator << " tensor at " << begin;
        begin += size;
      }
    }
  }
}

TEST(Compress, T21_BytesAreThoseOfTheFormulas) {
  for (const int replicas : {2, 3, 4}) {
    const World world{.replicas = replicas, .slots = 7, .precision = "fp32"};
    const auto bytes = [&](const std::string& strategy, const char* purpose) {
      const Outcome run = train(strategy, world);
      EXPECT_EQ(run.result.error, "") << strategy;
      const auto found = run.result.bytes_by_purpose.find(purpose);
      return found == run.result.bytes_by_purpose.end() ? 0 : found->second;
    };
    const auto ring = [&](std::int64_t elements) {
      return all_reduce_traffic(elements, DType::kF32, 0, replicas).bytes;
    };
    const auto others = static_cast<std::uint64_t>(replicas - 1);
    // Two slots of plain gradients (with the padding between tensors), then biases and the factors of 10 x 6
    // and 6 x 784.
    const Outcome probe = train("{type = 'ddp'}", world);
    const std::uint64_t plain = 2 * ring(static_cast<std::int64_t>(probe.replicas.at(0).own[0].size()));
    EXPECT_EQ(bytes(around("type = 'powersgd', start_after = 2, min_compression = 1.0", "{type = 'ddp'}"),
                    "gradient"),
              plain + 5 * (ring(10 + 6 + 10 + 6) + ring(6 + 784)));
    // By default compressing 10 x 6 does not pay: 2 (10 + 6) 2 is not less than 60.
    EXPECT_EQ(bytes(around("type = 'powersgd', start_after = 2, rank = 2", "{type = 'ddp'}"), "gradient"),
              plain + 5 * (ring(10 + 60 + 6 + 2 * 6) + ring(2 * 784)));
    // A bit per element, tensor by tensor, and four bytes for each of the four.
    const std::uint64_t signs = others * (2 + 8 + 1 + 588 + 4 * 4);
    EXPECT_EQ(bytes(around("type = 'sign', start_after = 2", "{type = 'ddp'}"), "gradient"),
              plain + 5 * signs);
    EXPECT_EQ(bytes(around("type = 'sign'", "{type = 'diloco', interval = 3}"), "parameter"), 2 * signs);
  }
}

TEST(Compress, RefusesWhatCannotHold) {
  const auto message = [](const std::string& strategy) {
    try {
      return train(strategy, {.slots = 2}).result.error;
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  for (const char* inner : {"{type = 'local_sgd'}", "{type = 'none'}", "{type = 'easgd'}",
                            "{type = 'sign', inner = {type = 'ddp'}}"}) {
    EXPECT_THAT(message(around("type = 'powersgd'", inner)),
                ::testing::HasSubstr("exchanges no means of gradients or of pseudo-gradients"))
        << inner;
  }
  EXPECT_THAT(message(around("type = 'sign'", "{type = 'ddp', communication = 'bf16'}")),
              ::testing::HasSubstr("leave out communication, or the compression"));
  EXPECT_THAT(message(around("type = 'sign'",
                             "{type = 'diloco', outer = 'sgd', outer_lr = 1.0, outer_momentum = 0.0}")),
              ::testing::HasSubstr("weights cannot be sent compressed"));
  EXPECT_THAT(message("{type = 'sign'}"), ::testing::HasSubstr("inner"));
}

}  // namespace
}  // namespace tenon::sync_test::compress_test
