// The rules of repetition.
#include "simulate/tasks.hpp"

#include <gtest/gtest.h>

namespace tenon::simulate {
namespace {

SimulationManifest of(std::int64_t samples) {
  SimulationManifest manifest;
  manifest.samples = samples;
  return manifest;
}

std::int64_t index_of(const std::optional<Tasks::Next>& next) {
  return next ? next->index : -1;
}

TEST(Tasks, GoInOrderUntilAllAreSettled) {
  SimulationManifest manifest = of(3);
  Tasks tasks(manifest, 0);
  EXPECT_EQ(tasks.waiting(), 3);
  for (const std::int64_t index : {0, 1, 2}) EXPECT_EQ(index_of(tasks.take()), index);
  EXPECT_FALSE(tasks.take().has_value());
  tasks.finished(1, "x");
  tasks.finished(0, "y");
  EXPECT_FALSE(tasks.settled());
  tasks.refused(2, "nan at step 3");
  EXPECT_TRUE(tasks.settled());
  EXPECT_TRUE(manifest.complete());
  EXPECT_EQ(manifest.failed.at(2).kind, "error");
  EXPECT_EQ(manifest.failed.at(2).cause, "nan at step 3");
  EXPECT_EQ(manifest.failed.at(2).attempts, 1);
}

TEST(Tasks, LostOnesAreRepeatedFirstAndNotForEver) {
  SimulationManifest manifest = of(2);
  Tasks tasks(manifest, 2);
  for (std::int64_t attempt = 1; attempt <= 3; ++attempt) {
    const auto next = tasks.take();
    EXPECT_EQ(index_of(next), 0);
    EXPECT_EQ(next->attempt, attempt);
    EXPECT_EQ(tasks.interrupted(0, "lost", "signal 9"), attempt < 3) << attempt;
  }
  EXPECT_EQ(manifest.failed.at(0).attempts, 3);
  EXPECT_EQ(manifest.failed.at(0).kind, "lost");
  EXPECT_EQ(tasks.repeated(), 2);
  EXPECT_EQ(index_of(tasks.take()), 1);
}

TEST(Tasks, OwnErrorsAreNotRepeated) {
  SimulationManifest manifest = of(1);
  Tasks tasks(manifest, 100);
  tasks.take();
  tasks.refused(0, "CFL");
  EXPECT_TRUE(tasks.settled());
}

TEST(Tasks, WhatIsGivenBackCostsNoAttempt) {
  SimulationManifest manifest = of(1);
  Tasks tasks(manifest, 0);
  tasks.take();
  tasks.give_back(0);
  const auto next = tasks.take();
  EXPECT_EQ(next->attempt, 1);
  EXPECT_EQ(tasks.repeated(), 0);
}

TEST(Tasks, AContinuedSimulationKeepsResultsAndOwnErrors) {
  SimulationManifest manifest = of(5);
  manifest.finished[1] = "x";
  manifest.failed[2] = {"error", "CFL", 1};
  manifest.failed[3] = {"time", "late", 3};
  manifest.failed[4] = {"lost", "signal 9", 3};
  Tasks tasks(manifest, 0);
  for (const std::int64_t index : {0, 3, 4}) EXPECT_EQ(index_of(tasks.take()), index);
  EXPECT_FALSE(tasks.take().has_value());
  EXPECT_EQ(manifest.failed.size(), 1u);
}

}  // namespace
}  // namespace tenon::simulate
