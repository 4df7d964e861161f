// Sums over slots, the time outside them, the two reports, and the observer's life cycle.
#include "profile.hpp"

#include "base/testing/allocation_count.hpp"
#include "store/testing/memory_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tenon::profile {
namespace {

using ::testing::HasSubstr;

/// One slot of 10 ms: two layers, optimizer, data and a transfer; 1 ms is in none of them.
void add_slot(Account& account, double at) {
  account.add({"data", "read", at, at + 0.0005});
  account.add({"compute", "forward", at + 0.0005, at + 0.0035});
  account.add({"layer", "a", at + 0.0005, at + 0.0015, 3e6, 1e6});
  account.add({"layer", "b", at + 0.0015, at + 0.0035});
  account.add({"compute", "backward", at + 0.004, at + 0.0075});
  account.add({"layer", "b backward", at + 0.004, at + 0.005});
  account.add({"layer", "a backward", at + 0.005, at + 0.0075, 6e6, 2e6});
  account.add({"communication", "all_reduce", at + 0.0075, at + 0.0085});
  account.add({"overlap", "gradient", at + 0.004, at + 0.0085});
  account.add({"compute", "optimizer", at + 0.0085, at + 0.0095});
  account.end_slot(0.01);
}

TEST(Account, PhasesAndTheRestAddUpToTheSlots) {
  Account account;
  for (const double at : {0.0, 1.0, 2.0}) add_slot(account, at);
  const PhaseTimes p = account.phases();
  EXPECT_NEAR(p.forward_s, 3 * 0.003, 1e-12);
  EXPECT_NEAR(p.backward_s, 3 * 0.0035, 1e-12);
  EXPECT_NEAR(p.optimizer_s, 3 * 0.001, 1e-12);
  EXPECT_NEAR(p.data_s, 3 * 0.0005, 1e-12);
  EXPECT_NEAR(p.communication_s, 3 * 0.001, 1e-12);
  EXPECT_NEAR(p.outside_s, 3 * 0.001, 1e-12);
  ASSERT_EQ(account.layers().size(), 2u);
  EXPECT_EQ(account.layers()[0].name, "a");
  EXPECT_NEAR(account.layers()[0].backward_s, 3 * 0.0025, 1e-12);
  EXPECT_EQ(account.layers()[0].flops, 3 * 9e6);
  EXPECT_EQ(account.layers()[1].flops, 0);
}

TEST(Account, ASteadySlotAllocatesNothing) {
  Account account;
  add_slot(account, 0);
  const std::int64_t before = testing::allocation_count();
  add_slot(account, 1);
  EXPECT_EQ(testing::allocation_count(), before);
}

TEST(Report, TheTableIsSortedAndCut) {
  Account account;
  add_slot(account, 0);
  add_slot(account, 1);
  EXPECT_EQ(table(account, 1),
            "2 slots of 10.000 ms\n\n"
            "phase                                       ms/slot   share\n"
            "layers, forward                               3.000  30.0 %\n"
            "layers, backward                              3.500  35.0 %\n"
            "optimizer                                     1.000  10.0 %\n"
            "data                                          0.500   5.0 %\n"
            "communication                                 1.000  10.0 %\n"
            "outside of these                              1.000  10.0 %\n"
            "\n"
            "layer                                    forward ms   backward   share   GFLOP/s     GB/s\n"
            "a                                             1.000      2.500  35.0 %       2.6      0.9\n"
            "... and 1 more in profile.json\n");
  EXPECT_EQ(table(Account(), 1), "");
}

TEST(Report, JsonHasEveryLayerPerSlot) {
  Account account;
  for (const double at : {0.0, 1.0}) add_slot(account, at);
  const auto json = nlohmann::json::parse(profile::json(account));
  EXPECT_EQ(json["slots"], 2);
  EXPECT_NEAR(json["outside_share"].get<double>(), 0.1, 1e-9);
  EXPECT_NEAR(json["phases"]["backward"].get<double>(), 0.0035, 1e-9);
  ASSERT_EQ(json["layers"].size(), 2u);
  EXPECT_EQ(json["layers"][1]["name"], "b");
  EXPECT_NEAR(json["layers"][0]["flops"].get<double>(), 9e6, 1);
}

TEST(Profile, ColdSlotsDoNotCountAndFilesAreWrittenAtTheEnd) {
  auto owned = std::make_unique<testing::MemoryFiles>();
  testing::MemoryFiles& files = *owned;
  files.make_directories("/run");
  Profile observer(1, 20, false, std::move(owned));
  RunInfo info;
  info.folder = "/run";
  observer.on_start(info);
  for (const double seconds : {5.0, 0.25, 0.25}) {
    observer.on_span({"layer", "a", 0, seconds / 2});
    SlotRecord record;
    record.seconds = seconds;
    observer.on_slot(record);
  }
  EXPECT_FALSE(files.exists("/run/profile.json"));
  observer.on_finish("completed", "");
  EXPECT_THAT(read_text(files, "/run/profile.txt", 1 << 20), HasSubstr("2 slots of 250.000 ms"));
  EXPECT_THAT(read_text(files, "/run/profile.json", 1 << 20), HasSubstr("\"slots\": 2"));
}

}  // namespace
}  // namespace tenon::profile
