// Rules of the checkpoint store: what it refuses, what it keeps, and which generation it prefers.
#include <tenon/checkpoint.hpp>

#include "store/testing/store_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

namespace tenon::store_rules_test {
namespace {

using ::testing::ElementsAre;
using testing::folder_names;
using ::testing::HasSubstr;
using testing::kFolder;
using testing::message_of;
using testing::save_as_world;
using testing::save_step;
using testing::TinyModel;

using StoreRules = testing::StoreFixture;

TEST_F(StoreRules, RefusesAnotherModel) {
  save_step(store_, 1, 1);
  const CheckpointReader reader = store_.open(1);
  struct Case {
    std::function<void(std::vector<TensorSpec>&)> change;
    const char* expected;
  };
  const Case cases[] = {
      {[](auto&) {}, "no error"},
      {[](auto& model) {
         model.push_back({"aardvark", DType::kF32, Shape{1}});
       },
       "it lacks tensor 'aardvark' (f32 [1])"},
      {[](auto& model) { model.erase(model.begin()); },
       "it has tensor 'bias' (f32 [5]), which the model does not"},
      {[](auto& model) {
         model[4].shape = Shape{6, 5};
       },
       "tensor 'weight' is f64 [6, 4] there and f64 [6, 5] in the model"},
      {[](auto& model) {
         model[0].dtype = DType::kF16;
         model[4].dtype = DType::kF32;
       },
       "tensor 'bias' is f32 [5] there and f16 [5]"},
  };
  for (const Case& c : cases) {
    std::vector<TensorSpec> model = TinyModel(1).specs();
    c.change(model);
    EXPECT_THAT(message_of([&] { reader.check_model(model); }), HasSubstr(c.expected));
  }
}

TEST_F(StoreRules, RefusesWrongReads) {
  save_step(store_, 1, 1);
  CheckpointReader reader = store_.open(1);
  std::vector<double> out(100);
  const auto view = [&](const Shape& shape, DType dtype) { return TensorView{out.data(), shape, dtype}; };
  const std::int64_t rows[] = {6};
  EXPECT_THAT(message_of([&] { reader.read("nope", view(Shape{1}, DType::kF64)); }),
              HasSubstr("has no tensor 'nope'"));
  EXPECT_THAT(message_of([&] {
                reader.read("weight", view(Shape{4, 6}, DType::kF64));
              }),
              HasSubstr("[4, 6] was asked for"));
  EXPECT_THAT(message_of([&] {
                reader.read("weight", view(Shape{6, 4}, DType::kF32));
              }),
              HasSubstr("f32 was asked for"));
  EXPECT_THAT(message_of([&] {
                reader.read_slice("weight", Shape{4, 0}, view(Shape{3, 4}, DType::kF64));
              }),
              HasSubstr("outside"));
  EXPECT_THAT(message_of([&] { reader.read_slice("weight", Shape{4}, view(Shape{1}, DType::kF64)); }),
              HasSubstr("outside"));
  EXPECT_THAT(message_of([&] {
                reader.read_rows("weight", rows, view(Shape{1, 4}, DType::kF64));
              }),
              HasSubstr("row 6 is outside"));
  EXPECT_THAT(message_of([&] { reader.read_rows("scale", rows, view(Shape{1}, DType::kBF16)); }),
              HasSubstr("is a scalar"));
  EXPECT_THAT(message_of([&] { store_.open(2); }), HasSubstr("cannot open"));
  EXPECT_THAT(message_of([&] { store_.open(-1); }), HasSubstr("no generation"));
}

TEST_F(StoreRules, AbortsSavesThatAreNoModel) {
  save_step(store_, 1, 1);
  TinyModel model(2);
  const TensorView bias = model.view("bias");
  const std::int64_t bad_rows[] = {2, 1};
  SaveItem unsorted{"bias", bias.rows(0, 2), Shape{5}, Shape{0}};
  unsorted.rows = bad_rows;
  const std::pair<std::vector<SaveItem>, const char*> cases[] = {
      {{{"bias", bias.rows(0, 4), Shape{5}, Shape{0}}}, "its parts hold 4 of 5 elements"},
      {{{"bias", bias.rows(0, 3), Shape{5}, Shape{0}}, {"bias", bias.rows(2, 5), Shape{5}, Shape{2}}},
       "overlapping parts"},
      {{{"bias", bias, Shape{5}, Shape{1}}}, "outside the global shape"},
      {{{"bias", bias, Shape{5, 1}, Shape{0}}}, "differ in rank"},
      {{{"bias", bias, Shape{5}, Shape{0}}, {"bias", bias, Shape{6}, Shape{0}}},
       "disagree about its type or global shape"},
      {{{"bi#as", bias, Shape{5}, Shape{0}}}, "contains '#'"},
      {{{"bias", {nullptr, Shape{5}, DType::kF32}, Shape{5}, Shape{0}}}, "it has no data"},
      {{{"bias", {bias.data, Shape{5}, DType::kF32, MemorySpace::kCuda}, Shape{5}, Shape{0}}}, "host memory"},
      {{unsorted}, "row ids must ascend"},
      {{{"b\xff", bias, Shape{5}, Shape{0}}}, "UTF-8"},
  };
  for (const auto& [items, expected] : cases) {
    const SaveResult result = save_items(2, -1, items);
    EXPECT_EQ(result.status, SaveStatus::kAborted);
    EXPECT_THAT(result.error, HasSubstr(expected));
    EXPECT_THAT(folder_names(files_, kFolder), ElementsAre("step-1"));
  }
  EXPECT_THAT(save_items(1, 5, {}).error, HasSubstr("cannot be an increment"));
  EXPECT_THAT(save_items(9, 5, {}).error, HasSubstr("step-5"));
}

TEST_F(StoreRules, RanksMustAgree) {
  TinyModel model(5);
  const auto report = [&](int rank, int world, std::int64_t step, const std::string& meta) {
    const std::vector<SaveItem> items = model.items(rank, world);
    const MetaBlock block{"reader", meta};
    SaveRequest request;
    request.step = step;
    request.items = items;
    request.meta = {&block, 1};
    return store_.write_part(request, rank, world);
  };
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{report(0, 2, 5, "a"), report(1, 2, 6, "a")}, "rank 1 saves step 6"},
      {{report(0, 2, 5, "a"), report(1, 2, 5, "b")}, "disagree about meta 'reader'"},
      {{report(1, 2, 5, "a"), report(0, 2, 5, "a")}, "report 0 comes from rank 1"},
      {{report(0, 2, 5, "a")}, "world of 2"},
      {{report(0, 2, 5, "a"), "garbage"}, "report of rank 1: not valid JSON"},
      {{report(0, 2, 5, "a"), ""}, "report of rank 1: not valid JSON"},
      {{}, "at least one rank"},
  };
  for (const auto& [reports, expected] : cases) {
    const SaveResult result = store_.commit(5, reports);
    EXPECT_EQ(result.status, SaveStatus::kAborted);
    EXPECT_THAT(result.error, HasSubstr(expected));
    EXPECT_TRUE(store_.generations().empty());
  }
}

TEST_F(StoreRules, StraysOfALargerWorldDoNotEnter) {
  TinyModel model(5);
  SaveRequest request;
  request.step = 5;
  const std::vector<SaveItem> items = model.items(2, 3);
  request.items = items;
  store_.write_part(request, 2, 3);  // and then this save was forgotten
  ASSERT_EQ(save_step(store_, 5, 2).status, SaveStatus::kCommitted);
  EXPECT_THAT(folder_names(files_, std::string(kFolder) + "/step-5"),
              ElementsAre("MANIFEST.json", "rank0.safetensors", "rank1.safetensors"));
}

TEST_F(StoreRules, P18_KeepsTheNewestAndWhatTheyNeed) {
  for (const std::int64_t step : {10, 20, 30}) save_step(store_, step, 1);
  EXPECT_THAT(store_.generations(), ElementsAre(20, 30));
  TinyModel newer(40);
  const SaveItem bias[] = {{"bias", newer.view("bias"), Shape{5}, Shape{0}}};
  ASSERT_EQ(save_items(40, 20, bias).status, SaveStatus::kCommitted);
  EXPECT_THAT(store_.generations(), ElementsAre(20, 30, 40));
  save_step(store_, 50, 1);
  EXPECT_THAT(store_.generations(), ElementsAre(20, 30, 40, 50));
  save_step(store_, 60, 1);
  EXPECT_THAT(store_.generations(), ElementsAre(50, 60));
  EXPECT_THAT(message_of([&] { CheckpointStore(files_, kFolder, {.keep = 1}); }), HasSubstr("at least 2"));
}

TEST_F(StoreRules, ALaterTimelineWins) {
  for (const std::int64_t step : {10, 20}) save_step(store_, step, 1);
  TinyModel model(15);
  SaveRequest request;
  request.step = 15;
  request.timeline = 1;  // after a roll-back to step 10
  ASSERT_EQ(save_as_world(store_, model, request, 1).status, SaveStatus::kCommitted);
  EXPECT_EQ(store_.recover(false).step, 15);
  EXPECT_EQ(store_.open(15).timeline(), 1);
}

TEST_F(StoreRules, ConsistentOnlyPassesOverPrioritySaves) {
  save_step(store_, 10, 1);
  TinyModel model(20);
  SaveRequest request;
  request.step = 20;
  request.consistent = false;
  ASSERT_EQ(save_as_world(store_, model, request, 1).status, SaveStatus::kCommitted);
  EXPECT_EQ(store_.recover(false).step, 20);
  EXPECT_EQ(store_.recover(true).step, 10);
  EXPECT_TRUE(store_.recover(true).rejected.empty());
}

TEST_F(StoreRules, F4_ChecksFreeSpaceFirst) {
  save_step(store_, 1, 1);
  files_.set_free_bytes(100);
  const SaveResult result = save_step(store_, 2, 1);
  EXPECT_EQ(result.status, SaveStatus::kAborted);
  EXPECT_THAT(result.error, HasSubstr("100 free bytes"));
  EXPECT_THAT(folder_names(files_, kFolder), ElementsAre("step-1"));
}

TEST_F(StoreRules, OtherFoldersAreLeftAlone) {
  save_step(store_, 1, 1);
  for (const char* name : {"notes", "step-x", "step-007", "step-3.tmpx"}) {
    files_.make_directories(std::string(kFolder) + "/" + name);
  }
  files_.make_directories(std::string(kFolder) + "/step-9.tmp");
  files_.make_directories(std::string(kFolder) + "/step-8.gc");
  EXPECT_EQ(store_.recover(false).step, 1);
  EXPECT_THAT(folder_names(files_, kFolder),
              ElementsAre("notes", "step-007", "step-1", "step-3.tmpx", "step-x"));
}

TEST_F(StoreRules, AnEmptyFolderHasNothingToRestore) {
  EXPECT_EQ(store_.recover(false).step, -1);
  EXPECT_TRUE(store_.generations().empty());
}

TEST_F(StoreRules, PhasesComeInOrderAndAThrowingHookAborts) {
  std::vector<std::string> phases;
  std::string stop_at;
  CheckpointStore store(files_, kFolder, {.keep = 2, .hook = [&](const char* phase) {
                                            phases.emplace_back(phase);
                                            if (phase == stop_at)
                                              throw std::runtime_error("stopped in " + stop_at);
                                          }});
  ASSERT_EQ(save_step(store, 1, 1).status, SaveStatus::kCommitted);
  EXPECT_THAT(phases, ElementsAre("write", "sync", "manifest", "verify", "rename", "gc", "done"));
  for (const char* phase : {"write", "sync", "manifest", "verify", "rename"}) {
    stop_at = phase;
    const SaveResult result = save_step(store, 2, 1);
    EXPECT_EQ(result.status, SaveStatus::kAborted);
    EXPECT_THAT(result.error, HasSubstr("stopped in " + stop_at));
    EXPECT_THAT(folder_names(files_, kFolder), ElementsAre("step-1"));
  }
  stop_at = "gc";
  EXPECT_EQ(save_step(store, 2, 1).status, SaveStatus::kCommitted)
      << "the generation stands before old ones go";
}

}  // namespace
}  // namespace tenon::store_rules_test
