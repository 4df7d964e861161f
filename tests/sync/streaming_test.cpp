// streaming_diloco: its agreement with diloco, the schedule of fragments, and the bytes sent.
#include "world.hpp"

namespace tenon::sync_test::streaming_test {
namespace {

constexpr const char* kAdamW = "type = \"adamw\"\nlr = 3e-3\n";

std::string streaming(const std::string& options) {
  return "{type = 'streaming_diloco', " + options + "}";
}

std::uint64_t parameter_bytes(const RunResult& result) {
  const auto found = result.bytes_by_purpose.find("parameter");
  return found == result.bytes_by_purpose.end() ? 0 : found->second;
}

/// Ends of the perceptron's tensors in `live`: they are in the order of backward.
constexpr std::size_t kTensors = 4;
std::vector<std::size_t> ends(const Outcome& run) {
  std::vector<std::size_t> sizes = {10, 60, 6, 4704}, result;
  // Bias and weight of a layer finish together; their order depends on the model.
  std::size_t end = 0;
  for (const std::size_t size : run.tensor_sizes) result.push_back(end += size);
  EXPECT_TRUE(
      std::is_permutation(sizes.begin(), sizes.end(), run.tensor_sizes.begin(), run.tensor_sizes.end()));
  return result;
}

/// Tensors that differ between two sets of weights.
std::vector<bool> moved(const Outcome& run, const Weights& a, const Weights& b) {
  std::vector<bool> result;
  std::size_t begin = 0;
  for (const std::size_t end : ends(run)) {
    result.push_back(!std::equal(a.begin() + static_cast<std::ptrdiff_t>(begin),
                                 a.begin() + static_cast<std::ptrdiff_t>(end),
                                 b.begin() + static_cast<std::ptrdiff_t>(begin)));
    begin = end;
  }
  return result;
}

TEST(Streaming, T14_OneFragmentWithoutDelayIsDiloco) {
  for (const char* outer :
       {"outer_lr = 0.7", "outer = 'adam', outer_lr = 0.1", "outer = 'sgd', outer_lr = 0.5"}) {
    const World world{.optimizer = kAdamW, .precision = "fp32"};
    const std::string common = std::string("interval = 5, ") + outer;
    const Outcome diloco = train("{type = 'diloco', " + common + "}", world);
    const Outcome one = train(streaming("fragments = 1, delay = 0, alpha = 0.0, " + common), world);
    ASSERT_EQ(one.result.error, "");
    EXPECT_EQ(one.result.weights_hash, diloco.result.weights_hash) << outer;
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(one.replicas.at(r).live, diloco.replicas.at(r).live) << outer;
      EXPECT_EQ(one.replicas.at(r).evaluated, diloco.replicas.at(r).evaluated) << outer;
    }
    EXPECT_EQ(parameter_bytes(one.result), parameter_bytes(diloco.result));
  }
}

TEST(Streaming, T14_ReplicasThatKeepTheirWeightsTrainAlone) {
  const World world{.optimizer = kAdamW, .precision = "fp32"};
  const Outcome alone = train("{type = 'none'}", world);
  const Outcome kept = train(streaming("interval = 4, fragments = 2, delay = 1, alpha = 1.0"), world);
  ASSERT_EQ(kept.result.error, "");
  for (int r = 0; r < 3; ++r) EXPECT_EQ(kept.replicas.at(r).live, alone.replicas.at(r).live);
  EXPECT_EQ(kept.replicas.at(0).evaluated, kept.replicas.at(2).evaluated);
  EXPECT_NE(kept.replicas.at(0).evaluated.back(), kept.replicas.at(0).evaluated[0]) << "the anchor moves";
}

// H = 7, P = 3: offsets 0, 2, 4. The anchor of a fragment moves `delay` slots after it has left, and nothing
// else moves it.
TEST(Streaming, T14_EveryFragmentMeetsOncePerInterval) {
  for (const std::string first : {"full", "short"}) {
    for (const std::int64_t delay : {0, 1}) {
      const Outcome run = train(streaming("interval = 7, fragments = 3, alpha = 0.5, first_sync = '" + first +
                                          "', delay = " + std::to_string(delay)),
                                {.slots = 30});
      ASSERT_EQ(run.result.error, "");
      constexpr std::int64_t kOffsets[] = {0, 2, 4};
      for (std::int64_t done = 2; done <= 30; ++done) {
        std::int64_t expected = -1;
        for (std::int64_t p = 0; p < 3; ++p) {
          const std::int64_t left = done - delay, begin = first == "full" || p == 0 ? 7 : 0;
          if (left >= kOffsets[p] + begin && left > 0 && (left - kOffsets[p]) % 7 == 0) expected = p;
        }
        const Trace& trace = run.replicas.at(1);
        const std::size_t t = done - 1;
        const std::vector<bool> anchor = moved(run, trace.evaluated[t], trace.evaluated[t - 1]);
        const std::vector<bool> weights = moved(run, trace.live[t], trace.before[t]);
        for (std::size_t i = 0; i < kTensors; ++i) {
          const bool meets = static_cast<std::int64_t>(i % 3) == expected;
          EXPECT_EQ(anchor[i], meets) << first << " delay " << delay << " slots " << done << " tensor " << i;
          EXPECT_EQ(weights[i], meets) << first << " delay " << delay << " slots " << done << " tensor " << i;
        }
      }
    }
  }
}

// g = mean(anchor - x) at the time when the fragment left; the outer step and the merge at its arrival.
TEST(Streaming, ASyncRoundFollowsItsFormula) {
  constexpr double kRate = 0.4, kMomentum = 0.9, kAlpha = 0.25;
  const Outcome run =
      train(streaming("interval = 6, patterns = ['head*', '*'], delay = 2, alpha = 0.25"), {.slots = 26});
  ASSERT_EQ(run.result.error, "");
  const Trace& first = run.replicas.at(0);
  Weights anchor = first.evaluated[0], momentum(anchor.size());
  const std::size_t head = ends(run)[1];  // the two tensors that backward finishes first
  int rounds = 0;
  for (std::int64_t left = 6; left + 2 <= 26; left += 3) {
    const bool is_head = left % 6 == 0;
    if (!is_head && left < 9) continue;
    const auto sent = static_cast<std::size_t>(left - 1), merged = static_cast<std::size_t>(left + 1);
    ++rounds;
    for (std::size_t i = is_head ? 0 : head; i < (is_head ? head : anchor.size()); ++i) {
      double g = anchor[i];
      for (int r = 0; r < 3; ++r) g -= run.replicas.at(r).live[sent][i] / 3;
      momentum[i] = kMomentum * momentum[i] + g;
      anchor[i] -= kRate * (g + kMomentum * momentum[i]);
      for (int r = 0; r < 3; ++r) {
        const Trace& trace = run.replicas.at(r);
        ASSERT_NEAR(trace.evaluated[merged][i], anchor[i], 1e-13) << left << " " << i;
        ASSERT_NEAR(trace.live[merged][i], kAlpha * trace.before[merged][i] + (1 - kAlpha) * anchor[i], 1e-13)
            << left << " " << i;
      }
      anchor[i] = first.evaluated[merged][i];
    }
  }
  EXPECT_EQ(rounds, 7);
}

TEST(Streaming, T15_TheAnchorIsTheSameOnAllReplicas) {
  for (const char* wire : {"parameter", "bf16", "e4m3", "fp4"}) {
    const Outcome run = train(
        streaming("interval = 4, fragments = 2, alpha = 0.5, communication = '" + std::string(wire) + "'"),
        {.optimizer = kAdamW, .precision = "fp32"});
    ASSERT_EQ(run.result.error, "") << wire;
    for (int r = 1; r < 3; ++r) EXPECT_EQ(run.replicas.at(r).evaluated, run.replicas.at(0).evaluated) << wire;
    EXPECT_NE(run.replicas.at(0).live[9], run.replicas.at(1).live[9]) << "alpha > 0: weights stay apart";
  }
}

TEST(Streaming, T16_TheSameSeedGivesTheSameBits) {
  for (const char* wire : {"parameter", "bf16", "e4m3", "fp4"}) {
    const std::string strategy =
        streaming("interval = 4, fragments = 2, alpha = 0.5, communication = '" + std::string(wire) + "'");
    const World world{.optimizer = kAdamW, .precision = "fp32"};
    const Outcome first = train(strategy, world);
    EXPECT_EQ(train(strategy, world).result.state_hash, first.result.state_hash) << wire;
    World other = world;
    other.seed = 2;
    EXPECT_NE(train(strategy, other).result.weights_hash, first.result.weights_hash) << wire;
  }
}

TEST(Streaming, T17_ASavedRunGoesOnWithAFragmentOnItsWay) {
  const World whole{.replicas = 2,
                    .slots = 15,
                    .optimizer = kAdamW,
                    .precision = "fp32",
                    .more = "[recovery]\ntype = \"full\"\nasync = false\nevery = 100\n"};
  for (const char* options :
       {"interval = 6, fragments = 2, delay = 2, alpha = 0.5", "interval = 6, fragments = 2, delay = 0",
        "interval = 6, fragments = 2, delay = 2, outer = 'adam', outer_lr = 0.1, first_sync = 'short'",
        "interval = 6, fragments = 2, delay = 2, alpha = 0.5, communication = 'fp4'",
        "interval = 6, fragments = 2, delay = 2, communication = 'e4m3'",
        "interval = 6, fragments = 2, delay = 2, communication = 'bf16'"}) {
    const std::string strategy = streaming(options);
    const Outcome undisturbed = train(strategy, whole);
    ASSERT_EQ(undisturbed.result.error, "") << strategy;
    // Before the first fragment leaves (6), right after it, in transit (7), as it arrives (8), between, with
    // the second one in transit (10), and with nothing left to do.
    for (const std::int64_t cut : {3, 6, 7, 8, 10, 13, 15}) {
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

TEST(Streaming, T20_EveryTensorIsSyncedOnceAndStatisticsFollowTheirPolicy) {
  constexpr const char* kImages =
      "[data]\ntype = \"mnist\"\nbatch = 4\nscale = \"standard\"\n[model]\ntype = \"resnet\"\nwidth = 4\n";
  constexpr const char* kTied =
      "[data]\ntype = \"text\"\npath = \"data/text/tinyshakespeare.txt\"\ncontext = 8\nbatch = "
      "2\n[model]\ntype = \"gpt_neo\"\nlayers = 1\nwidth = 8\nheads = 2\n";
  for (const char* model : {kImages, kTied}) {
    for (const char* policy : {"average", "local"}) {
      const Outcome run = train(streaming("interval = 4, fragments = 4, delay = 0"),
                                {.replicas = 2,
                                 .slots = 9,
                                 .precision = "fp32",
                                 .more = std::string("buffers = \"") + policy + "\"\n",
                                 .model = model});
      ASSERT_EQ(run.result.error, "");
      const Trace &a = run.replicas.at(0), &b = run.replicas.at(1);
      std::vector<int> met(a.live[0].size());
      for (std::size_t t = 3; t < 7; ++t) {  // one interval: fragments 0 to 3 at slots 4 to 7
        for (std::size_t i = 0; i < met.size(); ++i)
          met[i] += a.before[t][i] != b.before[t][i] && a.live[t][i] == b.live[t][i] ? 1 : 0;
      }
      EXPECT_EQ(*std::max_element(met.begin(), met.end()), 1);
      // Equal elements before a synchronisation round are rare: those whose gradient is zero on both.
      EXPECT_GT(static_cast<double>(std::count(met.begin(), met.end(), 1)),
                0.5 * static_cast<double>(met.size()));
      if (a.buffers[0].empty()) continue;
      EXPECT_NE(a.buffers[2], b.buffers[2]);
      EXPECT_EQ(a.buffers[3] == b.buffers[3], std::string_view(policy) == "average");
      EXPECT_EQ(a.evaluated_buffers[3], a.buffers[3]);
      EXPECT_EQ(a.evaluated_buffers[6], a.buffers[3]) << "until the next sync round of fragment 0";
    }
  }
}

TEST(Streaming, T21_BytesAreThoseOfTheFormulas) {
  // The tensors with their padding: 16, 64, 16 and 4704 elements; two fragments of two tensors each, fragment
  // 0 at slots 6, 12 and 18, fragment 1 at 9 and 15.
  for (const std::uint64_t replicas : {2, 3, 4}) {
    const World world{.replicas = static_cast<int>(replicas), .slots = 20, .precision = "fp32"};
    const auto bytes = [&](const char* wire) {
      const Outcome run =
          train(streaming("interval = 6, fragments = 2, communication = '" + std::string(wire) + "'"), world);
      EXPECT_EQ(run.result.error, "");
      return parameter_bytes(run.result);
    };
    const Outcome probe = train(streaming("interval = 6, fragments = 2"), world);
    std::uint64_t elements[2] = {0, 0};
    for (std::size_t i = 0; i < kTensors; ++i) elements[i % 2] += (probe.tensor_sizes[i] + 15) / 16 * 16;
    const auto sum = [&](auto per_fragment) {
      return 3 * per_fragment(elements[0]) + 2 * per_fragment(elements[1]);
    };
    const std::uint64_t others = replicas - 1;
    // Both fragments are whole 64-byte lines; where K does not divide them, the chunks differ by one line.
    const auto ring = [&](std::uint64_t n) {
      const std::uint64_t lines = n / 16, chunk0 = lines / replicas, chunk1 = 2 * lines / replicas - chunk0;
      return 64 * (2 * lines - chunk0 - chunk1);
    };
    EXPECT_EQ(bytes("parameter"), sum(ring));
    EXPECT_EQ(bytes("bf16"), sum([&](std::uint64_t n) { return others * 2 * n; }));
    EXPECT_EQ(bytes("e4m3"), sum([&](std::uint64_t n) { return others * (n + (n + 31) / 32); }));
    EXPECT_EQ(bytes("fp4"), sum([&](std::uint64_t n) { return others * (n / 2 + n / 16 + 4); }));
  }
}

// Effect of few bits on the mean pseudo-gradient: bounded by half a step of the format at the block's scale.
TEST(Streaming, FewBitsKeepMostOfTheWayBack) {
  const World world{.slots = 4};
  const auto anchor = [&](const std::string& wire) {
    const Outcome run =
        train(streaming("interval = 4, fragments = 1, delay = 0, outer = 'sgd', outer_lr = 1.0, "
                        "outer_momentum = 0.0, communication = '" +
                        wire + "'"),
              world);
    EXPECT_EQ(run.result.error, "");
    return run;
  };
  const Outcome exact = anchor("parameter");
  const Weights& begin = exact.replicas.at(0).evaluated[0];
  const Weights& mean = exact.last();
  double way = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) way += (mean[i] - begin[i]) * (mean[i] - begin[i]);
  // Largest relative error of one rounding: 2^-9 of bf16; 2^-4 of e4m3 but for the subnormals; about a tenth
  // in the root mean square of e2m1 with a scale for 16.
  double before = 0;
  for (const auto& [wire, low, high] :
       {std::tuple("bf16", 1e-4, 0x1p-9), std::tuple("e4m3", 1e-3, 0x1p-4), std::tuple("fp4", 1e-2, 0.15)}) {
    const Weights other = anchor(wire).last();
    double error = 0;
    for (std::size_t i = 0; i < mean.size(); ++i) error += (other[i] - mean[i]) * (other[i] - mean[i]);
    // Three replicas' errors, none larger than that of its own pseudo-gradient, which is longer than the
    // mean.
    EXPECT_GT(std::sqrt(error / way), low) << wire;
    EXPECT_LT(std::sqrt(error / way), 2 * high) << wire;
    EXPECT_GT(error, before) << "fewer bits, more error";
    before = error;
  }
}

// A transfer of a second under slots of a second: with a delay of one slot no replica waits for it.
TEST(Streaming, TransfersOverlapWithTheTraining) {
  // Two replicas send S each: 16 + 64 + 16 + 4704 elements of eight bytes.
  const auto seconds = [](const std::string& strategy) {
    const Outcome run =
        train(strategy, {.replicas = 2,
                         .slots = 13,
                         .sets = {"transport.clock.type=simulated", "transport.clock.compute_seconds=1.0",
                                  "transport.link.bandwidth=" + std::to_string(4800.0 * 8)}});
    EXPECT_EQ(run.result.error, "");
    return run.result.wall_s;
  };
  const double waits = seconds(streaming("interval = 4, fragments = 1, delay = 0"));
  EXPECT_NEAR(waits - seconds("{type = 'diloco', interval = 4}"), 0, 1e-6);
  EXPECT_NEAR(waits - seconds(streaming("interval = 4, fragments = 1, delay = 1")), 3, 0.02)
      << "the three transfers of 13 slots";
}

// One replica's infinity in a fragment reaches all replicas, in every format.
TEST(Streaming, NonFiniteWeightsAreNotHidden) {
  for (const char* wire : {"parameter", "bf16", "e4m3", "fp4"}) {
    const Outcome run = train(
        streaming("interval = 2, fragments = 1, delay = 0, communication = '" + std::string(wire) + "'"),
        {.replicas = 2,
         .slots = 2,
         .optimizer = "type = \"sgd\"\nlr = 1e39\n",
         .precision = "fp32",
         .sets = {"run.on_nan=continue"}});
    for (int r = 0; r < 2; ++r) {
      const Weights& anchor = run.replicas.at(r).evaluated.back();
      EXPECT_GT(
          std::count_if(anchor.begin(), anchor.end(), [](double value) { return !std::isfinite(value); }),
          1000)
          << wire;
    }
  }
}

TEST(Streaming, OneReplicaGoesThroughTheSameSteps) {
  const World alone{.replicas = 1};
  const Outcome diloco = train("{type = 'diloco', interval = 4}", alone);
  const Outcome one = train(streaming("interval = 4, fragments = 1, delay = 0, outer_lr = 0.7"), alone);
  ASSERT_EQ(one.result.error, "");
  EXPECT_EQ(one.last(), diloco.last());
  EXPECT_EQ(train(streaming("interval = 4, fragments = 2, communication = 'fp4'"), alone).result.error, "");
}

TEST(Streaming, RefusesWhatCannotHold) {
  const auto message = [](const std::string& options) {
    try {
      return train(streaming(options), {.slots = 2}).result.error;
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(message("interval = 0"), ::testing::HasSubstr("interval"));
  EXPECT_THAT(message("fragments = 0"), ::testing::HasSubstr("fragments"));
  EXPECT_THAT(message("fragments = 5"),
              ::testing::HasSubstr("5 fragments, but the model has 4 trained tensors"));
  EXPECT_THAT(message("interval = 2, fragments = 3, delay = 0"),
              ::testing::HasSubstr("3 fragments in an interval of 2 slots"));
  EXPECT_THAT(message("interval = 8, fragments = 4, delay = 2"),
              ::testing::HasSubstr("the next fragment leaves 2 slots after one that is still in flight"));
  EXPECT_THAT(message("patterns = ['head*']"), ::testing::HasSubstr("belongs to no fragment"));
  EXPECT_THAT(message("patterns = ['*', 'head*']"),
              ::testing::HasSubstr("no trained parameter is left for 'head*'"));
}

}  // namespace
}  // namespace tenon::sync_test::streaming_test
