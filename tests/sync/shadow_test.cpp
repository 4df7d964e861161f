// shadow_easgd, shadow_ma and shadow_bmuf in the foreground and stepped, where every slot is reproducible:
// invariants of an exchange, and equalities between modes.
#include "world.hpp"

namespace tenon::sync_test::shadow_test {
namespace {

const std::vector<std::string> kTwoServers = {"parallel.servers=2", "run.eval_every=1"};
constexpr const char* kAdamW = "type = \"adamw\"\nlr = 3e-3\n";

/// Sum over the replicas, element by element.
Weights sum(const std::map<int, Trace>& replicas, std::vector<Weights> Trace::*what, std::size_t slot) {
  Weights total((replicas.at(0).*what)[slot].size());
  for (const auto& [replica, trace] : replicas)
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += (trace.*what)[slot][i];
  return total;
}
Weights plus(Weights a, const Weights& b, double factor = 1) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}

// The centre gains what replicas lose in an exchange. `evaluated` of slot t is the centre before its
// exchange.
TEST(ShadowSync, T10_ExchangesWithTheCentreKeepTheSum) {
  for (const std::string exchange : {"symmetric", "sequential"}) {
    const Outcome run = train(
        "{type = 'shadow_easgd', mode = 'foreground', interval = 3, elastic = 0.4, "
        "exchange = '" +
            exchange + "'}",
        {.slots = 13, .sets = kTwoServers});
    ASSERT_EQ(run.result.error, "");
    for (std::size_t t = 0; t + 1 < 13; ++t) {
      const Weights before = plus(sum(run.replicas, &Trace::before, t), run.replicas.at(0).evaluated[t]);
      const Weights after = plus(sum(run.replicas, &Trace::live, t), run.replicas.at(0).evaluated[t + 1]);
      const bool meets = (t + 1) % 3 == 0;
      if (exchange == "symmetric" || !meets) {
        EXPECT_LE(difference(after, before), 1e-12) << exchange << " slot " << t;
      } else {
        EXPECT_GT(difference(after, before), 1e-6) << "sequential exchanges do not, slot " << t;
      }
      EXPECT_EQ(run.replicas.at(1).live[t] != run.replicas.at(1).before[t], meets);
    }
  }
}

// The trainer computes the force from the centre that it fetched, which others change meanwhile, and moves a
// slot later: replicas lose in the next slot what the centre gained in this one.
TEST(ShadowSync, T10_SoDoForcesFromAStaleCentre) {
  const Outcome run =
      train("{type = 'shadow_easgd', mode = 'foreground', interval = 3, elastic = 0.4, exchange = 'delta'}",
            {.slots = 13, .sets = kTwoServers});
  ASSERT_EQ(run.result.error, "");
  int moved = 0;
  for (std::size_t t = 2; t + 1 < 13; t += 3, ++moved) {
    const Weights gained = plus(run.replicas.at(0).evaluated[t + 1], run.replicas.at(0).evaluated[t], -1);
    const Weights lost =
        plus(sum(run.replicas, &Trace::before, t + 1), sum(run.replicas, &Trace::live, t + 1), -1);
    EXPECT_LE(difference(lost, gained), 1e-9) << "slot " << t;
    EXPECT_EQ(run.replicas.at(1).live[t], run.replicas.at(1).before[t]) << "not yet";
  }
  EXPECT_EQ(moved, 4);
}

// A server makes room for every trainer before any of them trains: it answers each trainer once, and trainer
// 0 once more, which brings the centre.
TEST(ShadowSync, ServersMakeRoomForEveryTrainerFirst) {
  const auto answers = [](int replicas) {
    const Outcome run = train("{type = 'shadow_easgd', mode = 'foreground', interval = 9}",
                              {.replicas = replicas, .slots = 2, .sets = {"parallel.servers=1"}});
    EXPECT_EQ(run.result.error, "");
    return run.result.bytes_by_purpose.at("servers.control");
  };
  const std::uint64_t two = answers(2);
  EXPECT_EQ(2 * answers(3), two + answers(4));
  EXPECT_EQ(3 * (answers(3) - two), two) << "one arena: two answers about room, one about the centre";
}

TEST(ShadowSync, T10_AveragesKeepTheMean) {
  for (const char* strategy : {"{type = 'shadow_ma', mode = 'foreground', interval = 3, weight = 0.3}",
                               "{type = 'shadow_ma', mode = 'foreground', interval = 3, merge = 'delta'}",
                               "{type = 'shadow_bmuf', mode = 'foreground', interval = 3, weight = 0.3}"}) {
    const Outcome run = train(strategy, {.slots = 12});
    ASSERT_EQ(run.result.error, "");
    for (std::size_t t = 2; t < 12; t += 3) {
      EXPECT_LE(difference(sum(run.replicas, &Trace::live, t), sum(run.replicas, &Trace::before, t)), 1e-12)
          << strategy;
      EXPECT_NE(run.replicas.at(1).live[t], run.replicas.at(1).before[t]);
    }
  }
}

TEST(ShadowSync, T11_NothingIsExchangedWithoutAShareAPeerOrATime) {
  const World three{.slots = 10, .optimizer = kAdamW, .precision = "fp32"};
  const Outcome alone = train("{type = 'none'}", three);
  World served = three;
  served.sets = {"parallel.servers=1"};
  for (const char* strategy : {"{type = 'shadow_easgd', elastic = 0.0}",
                               "{type = 'shadow_easgd', mode = 'foreground', interval = 11}"}) {
    const Outcome run = train(strategy, served);
    ASSERT_EQ(run.result.error, "");
    for (int r = 0; r < 3; ++r) EXPECT_EQ(run.last(r), alone.last(r)) << strategy;
  }
  for (const char* strategy : {"{type = 'shadow_ma', weight = 0.0}", "{type = 'shadow_bmuf', weight = 0.0}",
                               "{type = 'shadow_ma', mode = 'foreground', interval = 11}"}) {
    const Outcome run = train(strategy, three);
    ASSERT_EQ(run.result.error, "");
    for (int r = 0; r < 3; ++r) EXPECT_EQ(run.last(r), alone.last(r)) << strategy;
  }
  World one{.replicas = 1, .slots = 10, .optimizer = kAdamW, .precision = "fp32"};
  const Outcome single = train("{type = 'none'}", one);
  for (const char* type : {"shadow_easgd", "shadow_ma", "shadow_bmuf"}) {
    const Outcome run = train(std::string("{type = '") + type + "'}", one);
    EXPECT_EQ(run.result.weights_hash, single.result.weights_hash) << type << run.result.error;
  }
  one.sets = {"parallel.servers=1"};
  EXPECT_EQ(train("{type = 'shadow_easgd'}", one).result.weights_hash, single.result.weights_hash);
}

TEST(ShadowSync, T11_WholeAveragesInTheForegroundAreLocalSgd) {
  const World world{.slots = 16, .optimizer = kAdamW, .precision = "fp32"};
  const Outcome local = train("{type = 'local_sgd', interval = 4}", world);
  const Outcome mean = train("{type = 'shadow_ma', mode = 'foreground', interval = 4, weight = 1.0}", world);
  ASSERT_EQ(mean.result.error, "");
  for (int r = 0; r < 3; ++r) EXPECT_EQ(mean.replicas.at(r).live, local.replicas.at(r).live) << r;
}

struct Script {
  const char* type;
  const char* options;
  bool ordered;
};
constexpr Script kScripts[] = {
    {"shadow_easgd", "elastic = 0.4, order = [2, 0, 1]", true},
    {"shadow_easgd", "elastic = 0.4, exchange = 'sequential', order = [2, 0, 1]", true},
    {"shadow_easgd", "elastic = 0.4, exchange = 'delta', order = [2, 0, 1]", true},
    {"shadow_ma", "weight = 0.3", false},
    {"shadow_ma", "merge = 'delta'", false},
    {"shadow_bmuf", "weight = 0.3, step = 0.9, momentum = 0.5", false},
};
std::string scripted(const Script& script, const char* mode) {
  return std::string("{type = '") + script.type + "', mode = '" + mode + "', at = [3, 4, 9, 14], " +
         script.options + "}";
}
World world_of(const Script& script) {
  World world{.slots = 16, .optimizer = kAdamW, .precision = "fp32"};
  if (script.ordered) world.sets = {"parallel.servers=2"};
  return world;
}

TEST(ShadowSync, T12_SteppedIsTheForegroundWithTheSameScript) {
  for (const Script& script : kScripts) {
    const Outcome stepped = train(scripted(script, "stepped"), world_of(script));
    const Outcome foreground = train(scripted(script, "foreground"), world_of(script));
    ASSERT_EQ(stepped.result.error, "");
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(stepped.replicas.at(r).live, foreground.replicas.at(r).live) << script.options << r;
    }
    EXPECT_EQ(stepped.result.weights_hash, foreground.result.weights_hash);
    EXPECT_NE(stepped.replicas.at(0).live[3], stepped.replicas.at(0).before[3]) << "after the fourth slot";
    EXPECT_EQ(stepped.replicas.at(0).live[5], stepped.replicas.at(0).before[5]) << "no slot of the script";
  }
  const Outcome other = train("{type = 'shadow_easgd', mode = 'stepped', at = [3, 4, 9, 14], elastic = 0.4}",
                              world_of(kScripts[0]));
  EXPECT_NE(other.last(), train(scripted(kScripts[0], "stepped"), world_of(kScripts[0])).last())
      << "another order, another history";
}

TEST(ShadowSync, T15_WhatIsEvaluatedIsEqualOnAllTrainers) {
  for (const Script& script : kScripts) {
    World world = world_of(script);
    world.sets.push_back("run.eval_every=1");
    const Outcome run = train(scripted(script, "stepped"), world);
    for (std::size_t t = 0; t < 16; ++t) {
      for (int r = 1; r < 3; ++r)
        ASSERT_EQ(run.replicas.at(r).evaluated[t], run.replicas.at(0).evaluated[t]) << script.type << t;
    }
    EXPECT_NE(run.replicas.at(0).evaluated[15], run.replicas.at(0).evaluated[0]);
  }
}

TEST(ShadowSync, T16_ScriptsRepeatTheirBits) {
  for (const Script& script : kScripts) {
    const Outcome first = train(scripted(script, "stepped"), world_of(script));
    EXPECT_EQ(train(scripted(script, "stepped"), world_of(script)).result.state_hash,
              first.result.state_hash);
    World other = world_of(script);
    other.seed = 2;
    EXPECT_NE(train(scripted(script, "stepped"), other).result.state_hash, first.result.state_hash);
  }
}

TEST(ShadowSync, T17_ARunResumedInAnyPhaseIsTheWholeRun) {
  for (const Script& script : kScripts) {
    for (const char* every : {"2", "3", "4"}) {  // before, after and between exchanges
      const integration::Scratch scratch;
      World world = world_of(script);
      world.more = std::string("[recovery]\ntype = \"full\"\nevery = ") + every + "\n";
      const Outcome whole = train(scripted(script, "stepped"), world);
      World half = world;
      half.slots = 10;
      // The run's length is the schedule's and the budget's alone, so a shorter run stops like a killed one.
      ASSERT_EQ(train(scripted(script, "stepped"), half, (scratch / "run").string()).result.error, "");
      const Outcome rest = train(scripted(script, "stepped"), world, (scratch / "run").string(), true);
      ASSERT_EQ(rest.result.error, "");
      EXPECT_EQ(rest.result.state_hash, whole.result.state_hash) << script.type << " every " << every;
      EXPECT_EQ(rest.result.weights_hash, whole.result.weights_hash);
    }
  }
}

constexpr const char* kBatchNorm =
    "[data]\ntype = \"mnist\"\nbatch = 4\nscale = \"standard\"\n[model]\ntype = \"resnet\"\nwidth = 4\n";
constexpr const char* kTied =
    "[data]\ntype = \"text\"\npath = \"data/text/tinyshakespeare.txt\"\ncontext = 8\nbatch = "
    "2\n[model]\ntype = "
    "\"gpt_neo\"\nlayers = 1\nwidth = 8\nheads = 2\n";

TEST(ShadowSync, T20_MergesMoveEveryTensorOnceAndLeaveBuffersToTheirPolicy) {
  for (const char* model : {kBatchNorm, kTied}) {
    for (const bool centered : {false, true}) {
      World world{.replicas = 2, .slots = 8, .precision = "fp32", .model = model};
      world.sets = {"run.eval_every=1"};
      if (centered) world.sets.emplace_back("parallel.servers=3");
      const Outcome run =
          train(centered ? "{type = 'shadow_easgd', mode = 'stepped', interval = 4, elastic = 0.25}"
                         : "{type = 'shadow_ma', mode = 'stepped', interval = 4, weight = 0.25}",
                world);
      ASSERT_EQ(run.result.error, "");
      const Trace &first = run.replicas.at(0), &second = run.replicas.at(1);
      for (std::size_t i = 0; i < first.live[3].size(); ++i) {
        // Trainer 0 comes first, to the old centre; without one, to the mean.
        const double target =
            centered ? first.evaluated[3][i] : (first.before[3][i] + second.before[3][i]) / 2;
        const double before = first.before[3][i], size = std::max(std::abs(target), std::abs(before));
        ASSERT_NEAR(first.live[3][i], 0.75 * before + 0.25 * target, 4 * 0x1p-23 * size) << i;
      }
      if (first.buffers[0].empty()) continue;
      EXPECT_NE(first.buffers[2], second.buffers[2]) << "each trainer has met other samples";
      EXPECT_EQ(first.buffers[3] == second.buffers[3], !centered)
          << "averages meet, exchanges with a centre do not";
    }
  }
}

}  // namespace
}  // namespace tenon::sync_test::shadow_test
