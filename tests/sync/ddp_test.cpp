// ddp: neither bucket sizes nor the number of replicas, micro-batches or bytes per element changes the result
// beyond rounding.
#include "world.hpp"

#include <tenon/random.hpp>
#include <tenon/sdk/traffic.hpp>

namespace tenon::sync_test::ddp_test {
namespace {

constexpr const char* kAdamW = "type = \"adamw\"\nlr = 3e-3\n";
constexpr const char* kSgd = "type = \"sgd\"\nlr = 0.05\n";

std::string mlp(std::int64_t batch, const std::string& hidden) {
  return "[data]\ntype = \"mnist\"\nbatch = " + std::to_string(batch) +
         "\nscale = \"standard\"\n[model]\ntype = \"mlp\"\nhidden = " + hidden + "\n";
}
constexpr const char* kTied =
    "[data]\ntype = \"text\"\npath = \"data/text/tinyshakespeare.txt\"\ncontext = 8\nbatch = "
    "2\n[model]\ntype = \"gpt_neo\"\nlayers = 1\nwidth = 8\nheads = 2\n";
constexpr const char* kImages =
    "[data]\ntype = \"mnist\"\nbatch = 2\nscale = \"standard\"\n[model]\ntype = \"resnet\"\nwidth = 4\n";

TEST(DdpSync, T22_BucketsOfAnySizeGiveTheSameUpToRounding) {
  const RandomKey key = random_key(7, "buckets");
  int other_buckets = 0;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const auto draw = [&](std::uint64_t what, std::uint64_t below) {
      return static_cast<std::int64_t>(random_uniform(key, i, what) * static_cast<double>(below));
    };
    World world{.replicas = static_cast<int>(2 + draw(0, 3)), .slots = 3, .optimizer = kAdamW};
    const std::int64_t accumulate = 1 + draw(1, 3);
    world.sets = {"run.accumulate=" + std::to_string(accumulate)};
    std::string hidden = std::to_string(3 + draw(2, 20));
    for (std::int64_t layers = draw(3, 4); layers > 0; --layers)
      hidden += ", " + std::to_string(3 + draw(10 + static_cast<std::uint64_t>(layers), 20));
    world.model = i % 4 == 2   ? std::string(kTied)
                  : i % 4 == 3 ? std::string(kImages)
                               : mlp(1 + draw(4, 4), "[" + hidden + "]");
    if (i % 4 >= 2) world.precision = "fp32";
    // From one parameter per bucket to some hundred bytes, and to one bucket for all.
    const double size = i % 3 == 0 ? 0 : std::exp2(-14 + 10 * random_uniform(key, i, 5));
    const Outcome plain = train("{type = 'ddp'}", world);
    ASSERT_EQ(plain.result.error, "") << world.model;
    const Outcome other = train("{type = 'ddp', bucket_mb = " + std::to_string(size) + "}", world);
    ASSERT_EQ(other.result.error, "");
    other_buckets += other.replicas.at(0).buckets[0] != plain.replicas.at(0).buckets[0] ? 1 : 0;
    const double bound = world.precision == "fp32" ? 1e-4 : 1e-12;
    EXPECT_LE(difference(other.last(), plain.last()), bound) << world.model << size;
    for (int r = 1; r < world.replicas; ++r) {
      EXPECT_EQ(other.last(r), other.last(0)) << "replica " << r;
      EXPECT_EQ(plain.last(r), plain.last(0)) << "replica " << r;
    }
    if (i % 4 < 2) {  // and all of it is one replica that adds up as many micro-batches
      World alone = world;
      alone.replicas = 1;
      alone.sets = {"run.accumulate=" + std::to_string(accumulate * world.replicas)};
      EXPECT_LE(difference(other.last(), train("{type = 'none'}", alone).last()), 1e-12) << world.model;
    }
  }
  EXPECT_GT(other_buckets, 6);
}

TEST(DdpSync, T21_BytesAreThoseOfTheRing) {
  // 6 x 784, 6, 10 x 6 and 10 weights, in the order of backward, each from a multiple of 64 bytes on.
  for (const auto& [wire, dtype] :
       {std::pair("gradient", DType::kF32), std::pair("bf16", DType::kBF16), std::pair("f16", DType::kF16)}) {
    for (const int replicas : {2, 3, 4}) {
      const World world{.replicas = replicas, .slots = 5, .precision = "fp32"};
      const Outcome run = train(std::string("{type = 'ddp', communication = '") + wire + "'}", world);
      ASSERT_EQ(run.result.error, "");
      const auto elements = static_cast<std::int64_t>(run.replicas.at(0).own[0].size());
      EXPECT_EQ(run.result.bytes_by_purpose.at("gradient"),
                5 * all_reduce_traffic(elements, dtype, 0, replicas).bytes)
          << wire << " " << replicas;
    }
  }
}

/// x rounded to the nearest of a format with `bits` of fraction and smallest exponent `lowest`, ties to even.
double rounded(double x, int bits, int lowest) {
  if (x == 0) return x;
  const double step = std::ldexp(1.0, std::max(std::ilogb(x), lowest) - bits);
  return std::nearbyint(x / step) * step;
}

TEST(DdpSync, NarrowGradientsAreRoundedBehindTheDivision) {
  struct Format {
    const char* name;
    int bits, lowest;
  };
  for (const auto& [name, bits, lowest] : {Format{"bf16", 7, -126}, Format{"f16", 10, -14}}) {
    const std::string strategy = std::string("{type = 'ddp', communication = '") + name + "'}";
    // Two replicas: g = round(round(g0 / 2) + round(g1 / 2)), for either owner of the element.
    const Outcome two = train(strategy, {.replicas = 2, .slots = 4, .optimizer = kSgd, .precision = "fp32"});
    ASSERT_EQ(two.result.error, "");
    int changed = 0;
    for (std::size_t t = 0; t < 4; ++t) {
      const Weights &a = two.replicas.at(0).own[t], &b = two.replicas.at(1).own[t];
      EXPECT_EQ(two.replicas.at(0).mean[t], two.replicas.at(1).mean[t]);
      for (std::size_t i = 0; i < a.size(); ++i) {
        const auto sum =
            static_cast<float>(rounded(a[i] / 2, bits, lowest) + rounded(b[i] / 2, bits, lowest));
        ASSERT_EQ(two.replicas.at(0).mean[t][i], rounded(sum, bits, lowest)) << name << " element " << i;
        changed += two.replicas.at(0).mean[t][i] != (a[i] + b[i]) / 2 ? 1 : 0;
      }
    }
    EXPECT_GT(changed, 1000) << "two bytes are not four";
    // More replicas: one rounding each, and one per hop of sums that are no larger than the sum of sizes.
    const Outcome four = train(strategy, {.replicas = 4, .slots = 2});
    for (std::size_t i = 0; i < four.replicas.at(0).mean[1].size(); ++i) {
      double sum = 0, size = 0;
      for (int r = 0; r < 4; ++r) {
        sum += four.replicas.at(r).own[1][i] / 4;
        size += std::abs(four.replicas.at(r).own[1][i]) / 4;
      }
      const double bound = 4 * (std::ldexp(size, -bits - 1) + std::ldexp(1.0, lowest - bits - 1));
      ASSERT_NEAR(four.replicas.at(3).mean[1][i], sum, 1.01 * bound) << name;
    }
  }
}

TEST(DdpSync, T22_AParameterThatNoLossReachesIsNotUpdated) {
  constexpr const char* kIdle =
      "[data]\ntype = \"mnist\"\nbatch = 4\nscale = \"standard\"\n[model]\ntype = \"mlp\"\n"
      "[[model.layer]]\nname = \"flat\"\ntype = \"flatten\"\ninputs = [\"image\"]\n"
      "[[model.layer]]\nname = \"idle\"\ntype = \"linear\"\nfeatures = 5\ninputs = [\"flat\"]\n"
      "[[model.layer]]\nname = \"head\"\ntype = \"linear\"\nfeatures = 10\ninputs = [\"flat\"]\n"
      "[[model.layer]]\nname = \"loss\"\ntype = \"softmax_cross_entropy\"\ninputs = [\"head\", "
      "\"label\"]\n";
  const Outcome run = train(
      "{type = 'ddp', bucket_mb = 0.0}",
      {.replicas = 2, .slots = 3, .optimizer = std::string(kAdamW) + "weight_decay = 0.5\n", .model = kIdle});
  ASSERT_EQ(run.result.error, "");
  const Trace& trace = run.replicas.at(0);
  EXPECT_EQ(trace.buckets[0], 4) << "its gradients, zeros, travel too";
  const std::size_t used = 10 * 784 + 10;
  ASSERT_EQ(trace.live[0].size(), used + 5 * 784 + 5);
  for (std::size_t i = 0; i < trace.live[0].size(); ++i) {
    if (i < used) continue;
    ASSERT_EQ(trace.live[2][i], trace.live[0][i]) << "neither the gradient nor decay moves it";
  }
  EXPECT_NE(trace.live[2][0], trace.live[0][0]);
}

}  // namespace
}  // namespace tenon::sync_test::ddp_test
