// Lookups over replicas return what one replica that holds everything computes: the same bits where each bag
// has one row, else within the rounding of another order of the same sum.
#include "lookups.hpp"

#include "testing_tables.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>
#include <tenon/random.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/rows.hpp>

#include <gtest/gtest.h>

#include <thread>

namespace tenon::recsys {
namespace {

constexpr std::int64_t kRowWidth = 5, kSamples = 17;
const std::vector<std::int64_t> kRows = {40, 3, 1, 100};

struct World {
  explicit World(int replicas) : count(replicas) {
    transport->connect({.ranks = replicas, .deadline_s = 20, .link = {}, .clock = clock.get()});
    for (int r = 0; r < replicas; ++r) ranks.push_back(r);
  }
  int count;
  testing::Bench bench{"cpu", "reference", 1};
  std::unique_ptr<Clock> clock = make_wall_clock();
  testing::Made<Transport> transport = bench.make_component<Transport>("thread", "");
  std::vector<int> ranks;
};

std::vector<ParameterInfo> tables(const std::vector<std::vector<std::int64_t>>& offsets, int replica) {
  std::vector<ParameterInfo> infos;
  for (std::size_t t = 0; t < kRows.size(); ++t) {
    ParameterInfo info;
    info.index = static_cast<int>(t);
    info.spec.name = "table" + std::to_string(t);
    info.spec.shape = {kRows[t], kRowWidth};
    info.spec.role = Role::kRowTable;
    info.spec.init = Initializer::kUniform;
    info.spec.init_scale = 1;
    if (!offsets.empty()) info.spec.sharding = {{0, {kReplicaAxis}, offsets[t]}};
    const Box part = local_part(info.spec, {{}, {}, replica});
    info.local = part.extents;
    info.offset = part.offset;
    infos.push_back(info);
  }
  return infos;
}

std::vector<const RowTable*> pointers(const ParameterSet& set) {
  std::vector<const RowTable*> result;
  for (std::size_t t = 0; t < kRows.size(); ++t) result.push_back(set.table(static_cast<int>(t)));
  return result;
}

/// Ids of one replica's batch: power-law-like, some bags empty.
std::vector<std::int32_t> ids_of(int replica, std::int64_t length) {
  const RandomKey key = random_key(3, "ids");
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < kSamples * static_cast<std::int64_t>(kRows.size()) * length; ++i) {
    const auto table = static_cast<std::size_t>(i / length) % kRows.size();
    const double u = random_uniform(key, static_cast<std::uint64_t>(replica), static_cast<std::uint64_t>(i));
    const bool none = random_uniform(key, 99, static_cast<std::uint64_t>(i)) < 0.25;
    ids.push_back(none ? -1 : static_cast<std::int32_t>(u * u * static_cast<double>(kRows[table])));
  }
  return ids;
}

std::vector<float> alone(World& world, const std::vector<std::int32_t>& ids, std::int64_t length) {
  auto whole = make_parameter_set("whole", tables({}, 0), *world.bench.device, SetContents::kEverything);
  initialise(*whole, 5, *world.bench.device);
  const auto bags = static_cast<std::size_t>(kSamples) * kRows.size();
  std::vector<float> sums(bags * kRowWidth);
  PoolingScratch<float> scratch;
  for (std::size_t bag = 0; bag < bags; ++bag) {
    const std::int64_t begin[] = {0, length};
    pool<float>(*whole->table(static_cast<int>(bag % kRows.size())),
                std::span(ids).subspan(bag * static_cast<std::size_t>(length), length), begin,
                sums.data() + bag * kRowWidth, kRowWidth, scratch, Reads::kTraining);
  }
  return sums;
}

std::vector<std::vector<std::int64_t>> shard_offsets(int replicas, bool by_rows) {
  std::vector<std::vector<std::int64_t>> offsets;
  const std::vector<int> owners = balance(kRows, replicas);
  for (std::size_t t = 0; t < kRows.size(); ++t) {
    offsets.push_back(by_rows ? even_offsets(kRows[t], replicas)
                              : whole_offsets(kRows[t], owners[t], replicas));
  }
  return offsets;
}

// Any order of n additions is within (n - 1) eps of the sum of magnitudes (Higham 2002, 4.2), at most n.
double bound_of(bool by_rows, std::int64_t length) {
  return length == 1 || !by_rows ? 0 : 2.0 * static_cast<double>((length - 1) * length) * 0x1p-24;
}

class LookupsTest : public ::testing::TestWithParam<std::tuple<int, bool, std::int64_t>> {};

TEST_P(LookupsTest, GiveWhatOneReplicaComputesAlone) {
  const auto [replicas, by_rows, length] = GetParam();
  World world(replicas);
  const std::vector<std::vector<std::int64_t>> offsets = shard_offsets(replicas, by_rows);
  std::vector<std::vector<float>> found(replicas);
  std::vector<std::thread> threads;
  for (int r = 0; r < replicas; ++r) {
    threads.emplace_back([&, r, length = length] {
      auto set =
          make_parameter_set("live", tables(offsets, r), *world.bench.device, SetContents::kEverything);
      initialise(*set, 5, *world.bench.device);
      const auto group =
          world.transport->open(r, {.ranks = world.ranks, .name = "lookups", .purpose = Purpose::kModel});
      Lookups<float> lookups({kSamples, static_cast<std::int64_t>(kRows.size()), length, kRowWidth}, offsets,
                             *group);
      auto& sums = found[r];
      sums.assign(static_cast<std::size_t>(kSamples) * kRows.size() * kRowWidth, -7);
      for (int round = 0; round < 3; ++round)
        lookups.run(ids_of(r + 10 * round, length), pointers(*set), sums.data(), Reads::kTraining);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < replicas; ++r) {
    const std::vector<float> expected = alone(world, ids_of(r + 20, length), length);
    const std::vector<float>& sums = found[r];
    ASSERT_EQ(sums.size(), expected.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      ASSERT_NEAR(sums[i], expected[i], bound_of(by_rows, length)) << "replica " << r << ", element " << i;
    }
  }
}

TEST(LookupsReadsTest, T2_OwnersScanTheirRowsForAnEvaluation) {
  World world(2);
  const std::vector<std::vector<std::int64_t>> offsets = shard_offsets(2, true);
  std::vector<float> sums[2][2];
  std::size_t read[2] = {}, scanned[2] = {};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      auto set =
          make_parameter_set("live", tables(offsets, r), *world.bench.device, SetContents::kEverything);
      initialise(*set, 5, *world.bench.device);
      const CountedWeights weights(*set);
      const auto group =
          world.transport->open(r, {.ranks = world.ranks, .name = "lookups", .purpose = Purpose::kModel});
      Lookups<float> lookups({kSamples, static_cast<std::int64_t>(kRows.size()), 6, kRowWidth}, offsets,
                             *group);
      for (const Reads reads : {Reads::kTraining, Reads::kEvaluation}) {
        auto& out = sums[r][reads == Reads::kEvaluation ? 1 : 0];
        out.assign(static_cast<std::size_t>(kSamples) * kRows.size() * kRowWidth, -7);
        lookups.run(ids_of(r, 6), pointers(weights), out.data(), reads);
        if (reads == Reads::kTraining) read[r] = weights.read_rows();
      }
      EXPECT_EQ(weights.read_rows(), read[r]) << "the evaluation read rows as training does";
      scanned[r] = weights.scanned_rows();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < 2; ++r) {
    EXPECT_GT(read[r], 0U);
    EXPECT_EQ(scanned[r], read[r]);
    EXPECT_EQ(sums[r][0], sums[r][1]);
  }
}

// One replica asks, the others answer: no replica takes part in step. Request: 4 bytes for each table, each
// bag and each id of an owner; answer: a vector for each of these bags.
TEST_P(LookupsTest, GiveTheSameOnRequest) {
  const auto [replicas, by_rows, length] = GetParam();
  World world(replicas);
  const std::vector<std::vector<std::int64_t>> offsets = shard_offsets(replicas, by_rows);
  const PooledAnswers<float> answers(kRowWidth);
  std::vector<std::unique_ptr<ParameterSet>> sets;
  std::vector<ParameterSet*> views;
  for (int r = 0; r < replicas; ++r) {
    sets.push_back(
        make_parameter_set("live", tables(offsets, r), *world.bench.device, SetContents::kEverything));
    initialise(*sets.back(), 5, *world.bench.device);
    views.push_back(sets.back().get());
  }
  testing::RowsOfReplicas rows(views);
  std::vector<std::string> names;
  for (std::size_t t = 0; t < kRows.size(); ++t) names.push_back("table" + std::to_string(t));
  int node = -1;
  for (int r = 0; r < replicas; ++r) node = rows.service(r).offer("tables", names, answers);
  std::size_t asked = 0, answered = 0;
  for (int r = 0; r < replicas; ++r) {
    const auto group =
        world.transport->open(r, {.ranks = world.ranks, .name = "unused", .purpose = Purpose::kModel});
    Lookups<float> lookups({kSamples, static_cast<std::int64_t>(kRows.size()), length, kRowWidth}, offsets,
                           *group);
    const std::vector<std::int32_t> ids = ids_of(r, length);
    std::vector<float> sums(static_cast<std::size_t>(kSamples) * kRows.size() * kRowWidth, -7);
    for (int round = 0; round < 2; ++round) lookups.ask(ids, rows.service(r), node, sums.data());
    const std::vector<float> expected = alone(world, ids, length);
    for (std::size_t i = 0; i < sums.size(); ++i)
      ASSERT_NEAR(sums[i], expected[i], bound_of(by_rows, length)) << "replica " << r << ", element " << i;
    for (int owner = 0; owner < replicas; ++owner) {
      std::size_t bags = 0, count = 0;
      for (std::size_t bag = 0; bag < ids.size() / static_cast<std::size_t>(length); ++bag) {
        const std::vector<std::int64_t>& from = offsets[bag % kRows.size()];
        std::size_t here = 0;
        for (std::int64_t l = 0; l < length; ++l) {
          const std::int32_t id = ids[bag * static_cast<std::size_t>(length) + static_cast<std::size_t>(l)];
          const std::size_t at = owner;
          here += id >= 0 && id >= from[at] && id < from[at + 1] ? 1 : 0;
        }
        bags += here > 0 ? 1 : 0;
        count += here;
      }
      if (owner == r || bags == 0) continue;
      asked += 2 * 4 * (kRows.size() + bags + count);
      answered += 2 * 4 * bags * kRowWidth;
    }
  }
  EXPECT_EQ(rows.asked_bytes(), asked);
  EXPECT_EQ(rows.answered_bytes(), answered);
}

TEST(PooledAnswersTest, RefuseWhatDoesNotFit) {
  const testing::Bench bench{"cpu", "reference", 1};
  auto set = make_parameter_set("live", tables({}, 0), *bench.device, SetContents::kEverything);
  const std::vector<const RowTable*> rows = pointers(*set);
  const PooledAnswers<float> answers(kRowWidth);
  std::vector<float> out(2 * kRowWidth);
  const auto ask = [&](std::vector<std::int32_t> words) {
    answers.answer(std::as_bytes(std::span(words)), rows, std::as_writable_bytes(std::span(out)));
  };
  EXPECT_NO_THROW(ask({2, 0, 0, 0, 1, 1, 7, 39}));
  for (const std::vector<std::int32_t>& words : std::vector<std::vector<std::int32_t>>{
           {},                              // less than the tables
           {3, 0, 0, 0, 1, 1, 1, 7, 8, 9},  // more bags than the answer has room for
           {2, 0, 0, 0, 1, 1, 7},           // an id short
           {2, 0, 0, 0, 1, -1, 7},          // a length below zero
           {-1, 3, 0, 0, 1, 1, 7, 39},      // bags below zero
           {2, 0, 0, 0, 1, 1, 7, 40},       // a row after the table's last
       }) {
    EXPECT_THROW(ask(words), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, LookupsTest,
                         ::testing::Combine(::testing::Values(2, 3, 4), ::testing::Bool(),
                                            ::testing::Values(std::int64_t{1}, std::int64_t{6})));

}  // namespace
}  // namespace tenon::recsys
