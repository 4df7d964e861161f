// The weights of a run in checkpoints that are written by hand, also those of older versions.
#include "run/evaluated_weights.hpp"

#include "store/testing/memory_files.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A generation with one number in each of `tensors`.
CheckpointReader saved(CheckpointStore& store, const std::vector<std::string>& tensors,
                       const std::vector<MetaBlock>& meta) {
  float one = 1;
  std::vector<SaveItem> items;
  for (const std::string& name : tensors) {
    SaveItem item;
    item.name = name;
    item.data = {&one, Shape{1}, DType::kF32, MemorySpace::kHost};
    item.global_shape = Shape{1};
    item.offset = Shape{0};
    items.push_back(item);
  }
  SaveRequest request;
  request.step = 4;
  request.items = items;
  request.meta = meta;
  SoloExchange alone;
  EXPECT_EQ(store.save(request, 0, 1, alone).error, "");
  return store.open(4);
}

TEST(EvaluatedWeights, AreWhereTheStrategySaid) {
  const std::vector<std::string> anchored{"replica0/model/a",         "replica0/sync.anchor/a",
                                          "replica0/sync.momentum/a", "replica1/model/a",
                                          "replica1/sync.anchor/a",   "model/table"};
  const struct {
    const char* name;
    std::vector<std::string> tensors;
    std::vector<MetaBlock> meta;
    std::vector<std::string> a;  ///< tensor of parameter "a" of each replica
    bool own;
    const char* doubt;
  } cases[] = {
      {"shared", {"model/a"}, {{"evaluated/replica0", "model/"}}, {"model/a"}, false, ""},
      {"shared, of an earlier version", {"model/a"}, {}, {"model/a"}, false, ""},
      {"own",
       {"replica0/model/a", "replica1/model/a"},
       {{"evaluated/replica0", "replica0/model/"}, {"evaluated/replica1", "replica1/model/"}},
       {"replica0/model/a", "replica1/model/a"},
       true,
       ""},
      {"own, of an earlier version",
       {"replica0/model/a", "replica1/model/a"},
       {},
       {"replica0/model/a", "replica1/model/a"},
       true,
       ""},
      {"an anchor",
       anchored,
       {{"evaluated/replica0", "replica0/sync.anchor/"}, {"evaluated/replica1", "replica1/sync.anchor/"}},
       {"replica0/sync.anchor/a", "replica1/sync.anchor/a"},
       false,
       ""},
      {"an anchor, of an earlier version",
       anchored,
       {},
       {"replica0/model/a", "replica1/model/a"},
       true,
       "does not say which weights its strategy evaluates"},
      {"nowhere",
       {"replica0/model/a"},
       {{"evaluated/replica0", ""}},
       {"replica0/model/a"},
       true,
       "does not hold the weights that its strategy evaluates"},
  };
  for (const auto& c : cases) {
    testing::MemoryFiles files;
    CheckpointStore store(files, "checkpoints", {});
    const CheckpointReader reader = saved(store, c.tensors, c.meta);
    std::string doubt;
    const std::vector<StoredWeights> weights = stored_weights(reader, doubt);
    std::vector<std::string> found;
    for (const StoredWeights& replica : weights) found.push_back(replica.tensor("a"));
    EXPECT_EQ(found, c.a) << c.name;
    EXPECT_EQ(weights.front().own(), c.own) << c.name;
    EXPECT_THAT(doubt, *c.doubt == 0 ? ::testing::Matcher<const std::string&>(IsEmpty()) : HasSubstr(c.doubt))
        << c.name;
    if (c.tensors.back() == "model/table") {
      EXPECT_EQ(weights.front().tensor("table"), "model/table");
      EXPECT_THAT(weights.front().parameters(), ElementsAre("a", "table"));
    } else {
      EXPECT_THAT(weights.front().parameters(), ElementsAre("a")) << c.name;
    }
  }
  testing::MemoryFiles files;
  CheckpointStore store(files, "checkpoints", {});
  const CheckpointReader reader = saved(store, {"rank0/sync/x"}, {});
  std::string doubt;
  EXPECT_THROW(stored_weights(reader, doubt), Error);
}

}  // namespace
}  // namespace tenon::train
