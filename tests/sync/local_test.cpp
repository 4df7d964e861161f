// local_sgd, post_local_sgd, diloco and palsgd: identities between strategies, and the properties of each.
#include "world.hpp"

namespace tenon::sync_test::local_test {
namespace {

constexpr const char* kSgd = "type = \"sgd\"\nlr = 0.05\n";
constexpr const char* kMomentum = "type = \"sgd\"\nlr = 0.02\nmomentum = 0.9\n";
constexpr const char* kAdamW = "type = \"adamw\"\nlr = 3e-3\n";

std::uint64_t parameter_bytes(const RunResult& result) {
  const auto found = result.bytes_by_purpose.find("parameter");
  return found == result.bytes_by_purpose.end() ? 0 : found->second;
}

TEST(LocalSync, T1_PalsgdThatNeverMixesIsDiloco) {
  const World world{.optimizer = kAdamW, .precision = "fp32"};
  const Outcome diloco = train("{type = 'diloco', interval = 5, warmup = 3}", world);
  const Outcome palsgd = train("{type = 'palsgd', interval = 5, warmup = 3, p = 0.0}", world);
  ASSERT_EQ(diloco.result.error, "");
  EXPECT_EQ(palsgd.result.weights_hash, diloco.result.weights_hash);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(palsgd.last(r), diloco.last(r)) << r;
  const Outcome mixes = train("{type = 'palsgd', interval = 5, warmup = 3, p = 0.3}", world);
  EXPECT_NE(mixes.result.weights_hash, diloco.result.weights_hash);
}

TEST(LocalSync, T2_DilocoWithAPlainOuterStepIsLocalSgd) {
  for (const char* optimizer : {kSgd, kAdamW}) {
    const World world{.slots = 40, .optimizer = optimizer};
    const Outcome local = train("{type = 'local_sgd', interval = 4}", world);
    const Outcome assigned =
        train("{type = 'diloco', interval = 4, outer = 'sgd', outer_lr = 1.0, outer_momentum = 0.0}", world);
    EXPECT_EQ(assigned.last(), local.last()) << "the anchor becomes the mean itself";
    // A rate other than 1 uses pseudo-gradients; its remainder is of its own size.
    const Outcome stepped = train(
        "{type = 'diloco', interval = 4, outer = 'sgd', outer_lr = 1.00000000000001, outer_momentum = 0.0}",
        world);
    EXPECT_LE(difference(stepped.last(), local.last()), 1e-12);
    EXPECT_NE(stepped.last(), local.last());
  }
}

TEST(LocalSync, T3_AveragingEverySlotIsDataParallel) {
  World world{.slots = 200};
  world.optimizer = std::string(kSgd) + "weight_decay = 0.01\n";
  const Outcome ddp = train("{type = 'ddp'}", world);
  const Outcome local = train("{type = 'local_sgd', interval = 1}", world);
  ASSERT_EQ(local.result.error, "");
  EXPECT_LE(difference(local.last(), ddp.last()), 1e-12);
  EXPECT_NE(local.last(), ddp.last()) << "another order of sums";
}

TEST(LocalSync, T4_WithMomentumInTheMeanAndWithAdamNotAtAll) {
  const Outcome ddp = train("{type = 'ddp'}", {.slots = 60, .optimizer = kMomentum});
  const Outcome local = train("{type = 'local_sgd', interval = 1}", {.slots = 60, .optimizer = kMomentum});
  EXPECT_LE(difference(local.last(), ddp.last()), 1e-12);
  const Outcome adam = train("{type = 'ddp'}", {.slots = 60, .optimizer = kAdamW});
  const Outcome local_adam = train("{type = 'local_sgd', interval = 1}", {.slots = 60, .optimizer = kAdamW});
  EXPECT_GT(difference(local_adam.last(), adam.last()), 1e-3);
}

TEST(LocalSync, T5_OneReplicaOfPlainRoundsTrainsAlone) {
  const World world{.replicas = 1, .slots = 30, .optimizer = kAdamW};
  const Outcome alone = train("{type = 'none'}", world);
  for (const int interval : {1, 4, 7}) {
    const std::string rounds = "interval = " + std::to_string(interval);
    EXPECT_LE(difference(train("{type = 'local_sgd', " + rounds + "}", world).last(), alone.last()), 1e-12);
    EXPECT_LE(
        difference(
            train("{type = 'diloco', outer = 'sgd', outer_lr = 1.00000000000001, outer_momentum = 0.0, " +
                      rounds + "}",
                  world)
                .last(),
            alone.last()),
        1e-12);
    EXPECT_GT(difference(train("{type = 'diloco', " + rounds + "}", world).last(), alone.last()), 1e-4)
        << "Nesterov with 0.7 and 0.9 is another method";
  }
}

TEST(LocalSync, T6_PalsgdWithoutAPullIsDilocoThatSkips) {
  const World world{.optimizer = kAdamW, .precision = "fp32"};
  const Outcome palsgd = train("{type = 'palsgd', interval = 6, warmup = 0, p = 0.3, eta = 0.0}", world);
  const Outcome skips = train("{type = 'skipping', inner = {type = 'diloco', interval = 6}}", world);
  ASSERT_EQ(skips.result.error, "");
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(palsgd.last(r), skips.last(r)) << r;
    EXPECT_GT(
        std::count(palsgd.replicas.at(r).kinds.begin(), palsgd.replicas.at(r).kinds.end(), SlotKind::kMix),
        2);
  }
}

TEST(LocalSync, T7_AMixingSlotMovesEveryWeightItsShareOfTheWay) {
  // rate * eta / p: 0.05 * 8 / 0.4 = 1, and a quarter of it.
  for (const double share : {1.0, 0.25}) {
    const std::string eta = std::to_string(8 * share);
    const Outcome run = train("{type = 'palsgd', interval = 8, warmup = 0, p = 0.4, eta = " + eta + "}", {});
    ASSERT_EQ(run.result.error, "");
    int mixed = 0;
    for (const auto& [replica, trace] : run.replicas) {
      for (std::size_t t = 1; t < trace.kinds.size(); ++t) {
        if (trace.kinds[t] != SlotKind::kMix || (t + 1) % 8 == 0) continue;
        ++mixed;
        const Weights &before = trace.live[t - 1], &after = trace.live[t], &anchor = trace.evaluated[t];
        for (std::size_t i = 0; i < after.size(); ++i) {
          const double expected = anchor[i] + (1 - share) * (before[i] - anchor[i]);
          const double size = std::max(std::abs(anchor[i]), std::abs(before[i]));
          ASSERT_LE(std::abs(after[i] - expected), 4 * 0x1p-52 * size) << "weight " << i;
        }
      }
    }
    EXPECT_GT(mixed, 5);
  }
  // Refused before the first slot, for the peak of the whole schedule: slot 10 of 20 in a warm-up that
  // reaches 0.05 only then. Without a pull, or a little below 2, it trains.
  constexpr const char* kRising = "[schedule]\ntype = \"cosine\"\nwarmup = 10\n";
  const auto refusal = [&](const char* strategy) {
    try {
      return train(strategy, {.slots = 20, .more = kRising}).result.error;
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  watch.replicas.clear();
  EXPECT_THAT(
      refusal("{type = 'palsgd', interval = 8, warmup = 0, p = 0.4, eta = 16.0}"),
      ::testing::HasSubstr("0.05 * 16 / 0.4 = 2 times their way to the anchor, and from 2 on that diverges"));
  EXPECT_TRUE(watch.replicas.empty()) << "no slot has run";
  EXPECT_EQ(refusal("{type = 'palsgd', interval = 8, warmup = 0, p = 0.4, eta = 15.9}"), "");
  EXPECT_EQ(refusal("{type = 'palsgd', interval = 8, warmup = 0, p = 0.0, eta = 16.0}"), "");
  const Outcome first = train(
      "{type = 'palsgd', interval = 8, warmup = 0, p = 0.4, eta = 8.0, mix_first_tensor_only = true}", {});
  const Trace& trace = first.replicas.at(0);
  for (std::size_t t = 1; t < trace.kinds.size(); ++t) {
    if (trace.kinds[t] != SlotKind::kMix || (t + 1) % 8 == 0 || trace.live[t] == trace.evaluated[t]) continue;
    std::size_t moved = 0;
    for (std::size_t i = 0; i < trace.live[t].size(); ++i)
      moved += trace.live[t][i] != trace.live[t - 1][i] ? 1 : 0;
    EXPECT_LE(moved, 784u * 6) << "the first matrix alone";
  }
}

TEST(LocalSync, T8_MixingSlotsSendNothingAndAreDrawnWithTheirProbability) {
  const Outcome palsgd = train("{type = 'palsgd', interval = 6, warmup = 0, p = 0.3}", {});
  const Outcome diloco = train("{type = 'diloco', interval = 6}", {});
  EXPECT_EQ(parameter_bytes(palsgd.result), parameter_bytes(diloco.result));
  Outcome counted =
      train("{type = 'palsgd', interval = 6, warmup = 0, p = 0.3}", {.slots = 2, .more = "count = true\n"});
  ASSERT_EQ(counted.result.error, "");
  EXPECT_NEAR(watch.mixed_share, 0.3, 4 * std::sqrt(0.3 * 0.7 / 1e6));
  // Every replica draws independently, or all together; another seed, another schedule.
  const auto kinds = [](const char* strategy, std::int64_t seed) {
    const Outcome run = train(strategy, {.slots = 60, .seed = seed});
    return std::pair(run.replicas.at(0).kinds, run.replicas.at(1).kinds);
  };
  const auto own = kinds("{type = 'palsgd', interval = 60, warmup = 0, p = 0.3}", 1);
  EXPECT_NE(own.first, own.second);
  EXPECT_EQ(own, kinds("{type = 'palsgd', interval = 7, warmup = 0, p = 0.3, eta = 0.0}", 1));
  EXPECT_NE(own, kinds("{type = 'palsgd', interval = 60, warmup = 0, p = 0.3}", 2));
  const auto shared =
      kinds("{type = 'palsgd', interval = 60, warmup = 0, p = 0.3, decision_scope = 'shared'}", 1);
  EXPECT_EQ(shared.first, shared.second);
}

TEST(LocalSync, T10_AnElasticExchangeKeepsTheSumOfReplicasAndCentre) {
  const Outcome run = train("{type = 'easgd', interval = 4, elastic = 0.2}", {});
  ASSERT_EQ(run.result.error, "");
  for (std::size_t t = 3; t < 24; t += 4) {
    const Weights &before = run.replicas.at(0).evaluated[t - 1], &after = run.replicas.at(0).evaluated[t];
    for (std::size_t i = 0; i < after.size(); ++i) {
      double sum = before[i] - after[i], size = std::abs(before[i]);
      for (const auto& [replica, trace] : run.replicas) {
        sum += trace.before[t][i] - trace.live[t][i];
        size += std::abs(trace.before[t][i]);
        // Each by its share of the way to the centre that all had.
        const double expected = trace.before[t][i] - 0.2 * (trace.before[t][i] - before[i]);
        ASSERT_NEAR(trace.live[t][i], expected, 1e-12);
      }
      ASSERT_NEAR(sum, 0, 1e-14 * size);
    }
    EXPECT_EQ(after, run.replicas.at(2).evaluated[t]) << "one centre";
    EXPECT_NE(run.replicas.at(0).live[t], run.replicas.at(1).live[t]) << "replicas stay apart";
  }
}

TEST(LocalSync, T11_WithoutElasticityOrCompanyNothingIsExchanged) {
  const World world{.optimizer = kAdamW, .precision = "fp32"};
  const Outcome apart = train("{type = 'none'}", world);
  const Outcome loose = train("{type = 'easgd', interval = 4, elastic = 0.0}", world);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(loose.last(r), apart.last(r));
  EXPECT_EQ(loose.result.weights_hash, apart.result.weights_hash) << "a centre that never moves is no model";
  const World alone{.replicas = 1, .optimizer = kAdamW, .precision = "fp32"};
  EXPECT_EQ(train("{type = 'easgd', interval = 4}", alone).last(), train("{type = 'none'}", alone).last());
}

TEST(LocalSync, T13_BmufIsDilocoWithItsMomentumAndStep) {
  const World world{.slots = 40};
  const auto same = [&](const char* bmuf, const char* other) {
    const Outcome a = train(bmuf, world), b = train(other, world);
    EXPECT_EQ(a.result.error, "") << bmuf;
    EXPECT_LE(difference(a.last(), b.last()), 1e-12) << bmuf;
  };
  same("{type = 'bmuf', interval = 4, momentum = 0.6, step = 0.8}",
       "{type = 'diloco', interval = 4, outer_momentum = 0.6, outer_lr = 0.8}");
  same("{type = 'bmuf', interval = 4, momentum = 0.6, step = 0.8, nesterov = false}",
       "{type = 'diloco', interval = 4, outer = 'sgd', outer_momentum = 0.6, outer_lr = 0.8}");
  same("{type = 'bmuf', interval = 4, momentum = 0.0}", "{type = 'local_sgd', interval = 4}");
  // The same rule on both sides, with a state that matters.
  for (const std::string rule : {"keep", "reset", "average"}) {
    const World momentum{.slots = 40, .optimizer = kMomentum};
    const std::string more = ", interval = 4, local_state = '" + rule + "'";
    const Outcome bmuf = train("{type = 'bmuf', momentum = 0.6, step = 0.8" + more + "}", momentum);
    const Outcome diloco =
        train("{type = 'diloco', outer_momentum = 0.6, outer_lr = 0.8" + more + "}", momentum);
    EXPECT_EQ(bmuf.result.error, "") << rule;
    EXPECT_LE(difference(bmuf.last(), diloco.last()), 1e-12) << rule;
    const Outcome plain = train("{type = 'bmuf', momentum = 0.0" + more + "}", momentum);
    const Outcome averaged = train("{type = 'local_sgd'" + more + "}", momentum);
    EXPECT_LE(difference(plain.last(), averaged.last()), 1e-12) << rule;
    if (rule == "keep") continue;
    const Outcome kept = train("{type = 'bmuf', momentum = 0.6, step = 0.8, interval = 4}", momentum);
    EXPECT_GT(difference(bmuf.last(), kept.last()), 1e-3) << rule;
  }
  // The published rule for three replicas.
  same("{type = 'bmuf', interval = 4}",
       "{type = 'diloco', interval = 4, outer_momentum = 0.66666666666666667, outer_lr = 1.0}");
}

TEST(LocalSync, ASyncRoundKeepsResetsOrAveragesTheStateOfOptimizers) {
  for (const std::string rule : {"keep", "reset", "average"}) {
    const Outcome run = train("{type = 'bmuf', interval = 4, local_state = '" + rule + "'}",
                              {.slots = 8, .optimizer = kAdamW});
    ASSERT_EQ(run.result.error, "");
    const Weights& before = run.replicas.at(1).state_before[3];
    ASSERT_EQ(before.size(), 2 * run.last().size()) << "two moments";
    for (std::size_t t = 0; t < 8; ++t) {
      const Trace& trace = run.replicas.at(1);
      if (t % 4 != 3 || rule == "keep") {
        EXPECT_EQ(trace.state[t], trace.state_before[t]);
        continue;
      }
      for (std::size_t i = 0; i < before.size(); ++i) {
        double mean = 0, size = 0;
        for (const auto& [replica, other] : run.replicas) {
          mean += other.state_before[t][i] / 3;
          size += std::abs(other.state_before[t][i]);
        }
        if (rule == "reset") mean = size = 0;
        ASSERT_NEAR(trace.state[t][i], mean, 4 * 0x1p-52 * size) << rule << " element " << i;
      }
    }
  }
}

TEST(LocalSync, T15_ReplicasAreEqualAfterEverySyncRound) {
  for (const char* strategy :
       {"{type = 'bmuf', interval = 4, warmup = 5}", "{type = 'local_sgd', interval = 4, warmup = 5}",
        "{type = 'diloco', interval = 4, warmup = 5}",
        "{type = 'diloco', interval = 4, outer = 'adam', outer_lr = 0.1}",
        "{type = 'palsgd', interval = 4, warmup = 5, p = 0.3}",
        "{type = 'post_local_sgd', interval = 4, warmup = 5}"}) {
    const Outcome run = train(strategy, {.optimizer = kAdamW, .precision = "fp32"});
    ASSERT_EQ(run.result.error, "") << strategy;
    const bool warm = std::string_view(strategy).find("warmup") != std::string_view::npos;
    for (std::size_t t = 0; t < 24; ++t) {
      const bool meets = (t + 1) % 4 == 0 && !(warm && t < 5);
      const bool equal = run.replicas.at(0).live[t] == run.replicas.at(1).live[t] &&
                         run.replicas.at(0).live[t] == run.replicas.at(2).live[t];
      EXPECT_EQ(equal, meets || (warm && t < 5)) << strategy << " slot " << t;
    }
  }
}

TEST(LocalSync, T16_TheSameSeedGivesTheSameBits) {
  for (const char* strategy : {"{type = 'local_sgd', interval = 4}", "{type = 'diloco', interval = 4}",
                               "{type = 'bmuf', interval = 4}", "{type = 'easgd', interval = 4}",
                               "{type = 'palsgd', interval = 4, warmup = 3, p = 0.3}"}) {
    const World world{.optimizer = kAdamW, .precision = "fp32"};
    const Outcome first = train(strategy, world);
    EXPECT_EQ(train(strategy, world).result.state_hash, first.result.state_hash) << strategy;
    World other = world;
    other.seed = 2;
    EXPECT_NE(train(strategy, other).result.weights_hash, first.result.weights_hash) << strategy;
  }
}

TEST(LocalSync, T17_ASavedRunGoesOnAsIfNothingHadHappened) {
  const World whole{.replicas = 2,
                    .slots = 15,
                    .optimizer = kAdamW,
                    .precision = "fp32",
                    .more = "[recovery]\ntype = \"full\"\nasync = false\nevery = 100\n"};
  for (const char* strategy :
       {"{type = 'bmuf', interval = 4, warmup = 5}", "{type = 'easgd', interval = 4, warmup = 5}",
        "{type = 'bmuf', interval = 4, local_state = 'reset'}",
        "{type = 'bmuf', interval = 4, local_state = 'average'}",
        "{type = 'local_sgd', interval = 4, warmup = 5}", "{type = 'diloco', interval = 4, warmup = 5}",
        "{type = 'diloco', interval = 4, outer = 'adam', outer_lr = 0.1}",
        "{type = 'palsgd', interval = 4, warmup = 5, p = 0.3}"}) {
    const Outcome undisturbed = train(strategy, whole);
    ASSERT_EQ(undisturbed.result.error, "") << strategy;
    // In the warm-up, at its end, within an interval, before a synchronisation round, right after it, and
    // with nothing left to do.
    for (const std::int64_t cut : {2, 5, 6, 11, 12, 15}) {
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

TEST(LocalSync, T18_PostLocalSgdBeginsAsDataParallel) {
  const World world{.slots = 20, .optimizer = kAdamW, .precision = "fp32"};
  const Outcome ddp = train("{type = 'ddp'}", world);
  const Outcome post = train("{type = 'post_local_sgd', interval = 6, warmup = 8}", world);
  for (std::size_t t = 0; t < 8; ++t) EXPECT_EQ(post.replicas.at(1).live[t], ddp.replicas.at(1).live[t]) << t;
  // The first synchronisation round is the first multiple of the interval after the warm-up: slot 11, then
  // 17.
  for (std::size_t t = 8; t < 20; ++t) {
    EXPECT_EQ(post.replicas.at(0).live[t] == post.replicas.at(1).live[t], t == 11 || t == 17) << t;
  }
}

// The average movement in a slot: with probability p the pull, otherwise the step at rate / (1 - p).
TEST(LocalSync, T9_OnAverageASlotIsAStepOnTheLossWithAPull) {
  constexpr double kP = 0.3, kEta = 0.5, kRate = 0.05;
  const Outcome palsgd = train("{type = 'palsgd', interval = 30, warmup = 0, p = 0.3, eta = 0.5}", {});
  const Outcome plain = train("{type = 'local_sgd', interval = 30}", {});
  ASSERT_EQ(palsgd.result.error, "");
  int steps = 0, pulls = 0;
  for (const auto& [replica, trace] : palsgd.replicas) {
    const Weights& start = trace.evaluated[0];  // the anchor of the first round: the initial weights
    if (trace.kinds[0] == SlotKind::kGrad) {
      ++steps;
      for (std::size_t i = 0; i < start.size(); ++i) {
        const double step = plain.replicas.at(replica).live[0][i] - start[i];
        ASSERT_NEAR((1 - kP) * (trace.live[0][i] - start[i]), step, 1e-15 + 1e-12 * std::abs(step));
      }
    }
    for (std::size_t t = 1; t < trace.kinds.size(); ++t) {
      if (trace.kinds[t] != SlotKind::kMix) continue;
      ++pulls;
      for (std::size_t i = 0; i < start.size(); ++i) {
        const double pull = -kRate * kEta * (trace.live[t - 1][i] - start[i]);
        ASSERT_NEAR(kP * (trace.live[t][i] - trace.live[t - 1][i]), pull, 1e-15);
      }
    }
  }
  EXPECT_GT(steps, 0);
  EXPECT_GT(pulls, 3);
}

constexpr const char* kBatchNorm =
    "[data]\ntype = \"mnist\"\nbatch = 4\nscale = \"standard\"\n[model]\ntype = \"resnet\"\nwidth = 4\n";
constexpr const char* kTied =
    "[data]\ntype = \"text\"\npath = \"data/text/tinyshakespeare.txt\"\ncontext = 8\nbatch = "
    "2\n[model]\ntype = "
    "\"gpt_neo\"\nlayers = 1\nwidth = 8\nheads = 2\n";

TEST(LocalSync, T20_MixingMovesEveryTensorOnceAndNoBuffer) {
  const char* strategy =
      "{type = 'palsgd', interval = 6, warmup = 0, p = 0.4, eta = 2.0}";  // a quarter of the way
  for (const char* model : {kBatchNorm, kTied}) {
    const Outcome run = train(strategy, {.replicas = 2, .slots = 12, .precision = "fp32", .model = model});
    ASSERT_EQ(run.result.error, "");
    int mixed = 0;
    for (const auto& [replica, trace] : run.replicas) {
      for (std::size_t t = 1; t < trace.kinds.size(); ++t) {
        if (trace.kinds[t] != SlotKind::kMix || (t + 1) % 6 == 0) continue;
        ++mixed;
        EXPECT_EQ(trace.buffers[t], trace.buffers[t - 1]);
        for (std::size_t i = 0; i < trace.live[t].size(); ++i) {
          const double anchor = trace.evaluated[t][i], before = trace.live[t - 1][i];
          const double size = std::max(std::abs(anchor), std::abs(before));
          ASSERT_NEAR(trace.live[t][i], anchor + 0.75 * (before - anchor), 4 * 0x1p-23 * size) << i;
        }
      }
    }
    EXPECT_GT(mixed, 2);
  }
}

TEST(LocalSync, T20_StatisticsOfBatchNormFollowTheirPolicyAtSyncRounds) {
  for (const char* policy : {"average", "broadcast", "local"}) {
    const Outcome run =
        train("{type = 'diloco', interval = 4}", {.replicas = 2,
                                                  .slots = 8,
                                                  .precision = "fp32",
                                                  .more = std::string("buffers = \"") + policy + "\"\n",
                                                  .model = kBatchNorm});
    ASSERT_EQ(run.result.error, "");
    const Trace &first = run.replicas.at(0), &second = run.replicas.at(1);
    ASSERT_FALSE(first.buffers[0].empty());
    EXPECT_NE(first.buffers[2], second.buffers[2]) << "each replica has met other samples";
    EXPECT_EQ(first.buffers[3] == second.buffers[3], std::string_view(policy) != "local") << policy;
    EXPECT_NE(first.buffers[3], first.buffers[0]) << "not those of the beginning";
    EXPECT_EQ(first.evaluated_buffers[3], first.buffers[3]) << "the anchor is evaluated with them";
    EXPECT_EQ(second.evaluated_buffers[6], second.buffers[3]) << "until the next sync round";
  }
}

TEST(LocalSync, T21_BytesAreThoseOfTheFormulas) {
  // 6 x 784 + 6 + 10 x 6 + 10 weights, each tensor up to a multiple of 16: a multiple of all K here, so that
  // every replica sends 2 (K-1) / K S for each all-reduce.
  constexpr std::uint64_t kBytes = 4 * (4704 + 16 + 64 + 16);
  for (const std::uint64_t replicas : {2, 3, 4}) {
    const World world{.replicas = static_cast<int>(replicas), .slots = 20, .precision = "fp32"};
    const std::uint64_t round = 2 * (replicas - 1) * kBytes / replicas;
    EXPECT_EQ(parameter_bytes(train("{type = 'local_sgd', interval = 6}", world).result), 3 * round);
    for (const char* type : {"diloco", "bmuf", "easgd"})
      EXPECT_EQ(parameter_bytes(train(std::string("{type = '") + type + "', interval = 6}", world).result),
                3 * round);
    // AdamW's two moments are sent with the weights.
    const World adam{
        .replicas = static_cast<int>(replicas), .slots = 20, .optimizer = kAdamW, .precision = "fp32"};
    EXPECT_EQ(parameter_bytes(train("{type = 'bmuf', interval = 6, local_state = 'average'}", adam).result),
              3 * 3 * round);
    EXPECT_EQ(parameter_bytes(train("{type = 'bmuf', interval = 6, local_state = 'reset'}", adam).result),
              3 * round);
    // T_w gradients, one average at T_w, and floor(T / H) - floor(T_w / H) rounds.
    const Outcome palsgd = train("{type = 'palsgd', interval = 6, warmup = 7, p = 0.3}", world);
    const Outcome ddp = train("{type = 'ddp'}", world);
    EXPECT_EQ(palsgd.result.bytes_by_purpose.at("gradient"),
              ddp.result.bytes_by_purpose.at("gradient") / 20 * 7);
    EXPECT_EQ(parameter_bytes(palsgd.result), (1 + 20 / 6 - 7 / 6) * round);
    EXPECT_EQ(parameter_bytes(ddp.result), 0u);
  }
}

// g = anchor - mean(x), and the three rules on it, from each replica's weights at the start of the
// synchronisation round.
TEST(LocalSync, OuterStepsFollowTheirFormulas) {
  constexpr double kRate = 0.3, kMomentum = 0.8, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 0.1;
  for (const std::string rule : {"nesterov", "sgd", "adam"}) {
    const Outcome run =
        train("{type = 'diloco', interval = 4, outer_lr = 0.3, outer_momentum = 0.8, outer = '" + rule + "'}",
              {.slots = 21});
    ASSERT_EQ(run.result.error, "");
    Weights anchor = run.replicas.at(0).evaluated[0], first(anchor.size()), second(anchor.size());
    for (std::size_t t = 3, round = 1; t < 20; t += 4, ++round) {
      for (std::size_t i = 0; i < anchor.size(); ++i) {
        double g = anchor[i];
        for (int r = 0; r < 3; ++r) g -= run.replicas.at(r).before[t][i] / 3;
        if (rule == "adam") {
          first[i] = kBeta1 * first[i] + (1 - kBeta1) * g;
          second[i] = kBeta2 * second[i] + (1 - kBeta2) * g * g;
          const double n = static_cast<double>(round);
          anchor[i] -= kRate * (first[i] / (1 - std::pow(kBeta1, n))) /
                       (std::sqrt(second[i] / (1 - std::pow(kBeta2, n))) + kEps);
        } else {
          first[i] = kMomentum * first[i] + g;
          anchor[i] -= kRate * (rule == "sgd" ? first[i] : g + kMomentum * first[i]);
        }
      }
      EXPECT_LE(difference(run.replicas.at(1).live[t], anchor), 1e-12) << rule << " round " << round;
      EXPECT_EQ(run.replicas.at(2).evaluated[t], run.replicas.at(2).live[t]);
      anchor = run.replicas.at(0).live[t];
    }
  }
}

TEST(LocalSync, RefusesWhatCannotHold) {
  const auto message = [](const std::string& strategy) {
    try {
      return train(strategy, {.slots = 2}).result.error;
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(message("{type = 'local_sgd', interval = 0}"), ::testing::HasSubstr("interval"));
  EXPECT_THAT(message("{type = 'palsgd', p = 1.0}"), ::testing::HasSubstr("p"));
  EXPECT_THAT(message("{type = 'post_local_sgd'}"), ::testing::HasSubstr("warmup"));
  EXPECT_THAT(message("{type = 'easgd', elastic = 0.5}"),
              ::testing::HasSubstr("exchanges diverge from (K + 1) * elastic = 2 on, and this is 2"));
  EXPECT_THAT(message("{type = 'diloco', outer_betas = [0.9]}"),
              ::testing::HasSubstr("expected two, e.g. [0.9, 0.95]"));
}

}  // namespace
}  // namespace tenon::sync_test::local_test
