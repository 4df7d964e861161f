// Sets of samples from finished and growing simulations, with holes, in splits that do not depend on the set.
#include "simulated.hpp"

#include "base/testing/allocation_count.hpp"

#include <tenon/sdk/npy.hpp>
#include <tenon/testing/batches.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>

#include <set>
#include <thread>

namespace tenon::simulated {
namespace {

using testing::Batch;
using testing::error_of;
using ::testing::HasSubstr;
using testing::QuietHost;
using Made = testing::MadeData<Simulated>;

class SimulatedTest : public testing::FolderTest {
 protected:
  /// A simulation with input a = {i, i + 0.5} and target u = {2 i}.
  void simulate(std::int64_t samples, const std::set<std::int64_t>& missing,
                const std::set<std::int64_t>& failed) {
    SimulationManifest manifest;
    manifest.simulator = "darcy";
    manifest.plugin = "tenon.porous";
    manifest.plugin_version = "0.1.0";
    manifest.config = "[simulator]\n";
    manifest.samples = samples;
    manifest.fields = {{"a", DType::kF32, Shape{2}, false}, {"u", DType::kF64, Shape{1}, true}};
    for (std::int64_t i = 0; i < samples; ++i) {
      if (failed.count(i) > 0) manifest.failed[i] = {"error", "CFL", 1};
      if (failed.count(i) > 0 || missing.count(i) > 0) continue;
      const float value = static_cast<float>(i);
      std::array<float, 2> a{value, value + 0.5f};
      std::array<double, 1> u{2.0 * value};
      const std::string folder = simulation_sample_folder(path(), i);
      files_->make_directories(folder);
      write_npy(*files_, folder + "/a.npy", {a.data(), Shape{2}, DType::kF32});
      write_npy(*files_, folder + "/u.npy", {u.data(), Shape{1}, DType::kF64});
      manifest.finished[i] = std::string(32, static_cast<char>('0' + i % 10));
    }
    files_->write_text_atomically(simulation_manifest_path(path()), simulation_manifest_text(manifest));
  }
  std::string path() const { return folder_; }
  Made open(const std::string& more = "") {
    Made made = testing::make_data<Simulated>("path = '" + path() + "'\nbatch = 1\n" + more, host_);
    made->open(1);
    return made;
  }
  /// Returns the numbers of the samples of a split, in the order of one epoch.
  std::vector<int> samples(const Made& made, Split split) {
    std::vector<int> found;
    Batch batch(*made.data);
    const std::int64_t count = split == Split::kTrain ? made->info().train_samples : made->info().val_samples;
    for (std::int64_t i = 0; i < count; ++i) {
      made->read({.split = split, .first = i, .count = 1}, batch.views);
      const auto a = batch.values<float>(0);
      const auto u = batch.values<double>(1);
      EXPECT_EQ(a[1], a[0] + 0.5f);
      EXPECT_EQ(u[0], 2.0 * a[0]);
      found.push_back(static_cast<int>(a[0]));
    }
    return found;
  }
  std::set<int> set_of(const Made& made, Split split) {
    const std::vector<int> all = samples(made, split);
    return {all.begin(), all.end()};
  }

  std::unique_ptr<FileSystem> files_ = make_posix_files();
  QuietHost host_;
};

TEST_F(SimulatedTest, ReadsEverySampleOnce) {
  simulate(40, {}, {});
  const Made made = open("val_fraction = 0.25\n");
  EXPECT_EQ(made->info().fields[0].name, "a");
  EXPECT_EQ(made->info().fields[1].name, "u");
  std::set<int> all = set_of(made, Split::kTrain);
  const std::set<int> val = set_of(made, Split::kVal);
  EXPECT_EQ(all.size() + val.size(), 40u);
  EXPECT_TRUE(val.size() > 4 && val.size() < 16) << val.size();
  all.insert(val.begin(), val.end());
  EXPECT_EQ(all.size(), 40u);
  EXPECT_TRUE(host_.messages.empty());
}

TEST_F(SimulatedTest, HolesAreLeftOutAndSaid) {
  simulate(20, {}, {3, 11});
  const Made made = open("val_fraction = 0\n");
  const std::set<int> train = set_of(made, Split::kTrain);
  EXPECT_EQ(train.size(), 18u);
  EXPECT_EQ(train.count(3) + train.count(11), 0u);
  ASSERT_EQ(host_.messages.size(), 1u);
  EXPECT_THAT(host_.messages[0],
              HasSubstr("2 of 20 samples in '" + path() + "' failed and are left out: 3, 11"));
}

TEST_F(SimulatedTest, PartsDependOnTheIndexAlone) {
  simulate(60, {}, {});
  const char* const kParts = "val_fraction = 0.2\ntest_fraction = 0.2\n";
  const std::set<int> train = set_of(open(kParts), Split::kTrain), val = set_of(open(kParts), Split::kVal);
  const std::set<int> test = set_of(open(std::string(kParts) + "evaluate_on = 'test'\n"), Split::kVal);
  EXPECT_EQ(train.size() + val.size() + test.size(), 60u);
  for (const int index : test) EXPECT_EQ(train.count(index) + val.count(index), 0u) << index;
  // A set that grows, with holes, moves no sample to another split.
  simulate(90, {}, {1, 2, 30});
  const std::set<int> later = set_of(open(kParts), Split::kTrain),
                      later_val = set_of(open(kParts), Split::kVal);
  EXPECT_GT(later.size(), train.size());
  for (const int index : val) EXPECT_EQ(later.count(index), 0u) << index;
  for (const int index : train) EXPECT_EQ(later_val.count(index), 0u) << index;
}

TEST_F(SimulatedTest, AGrowingSimulationNeedsANamedSet) {
  simulate(20, {7, 8, 9}, {});
  EXPECT_THAT(error_of([&] { open(); }),
              HasSubstr("is not complete: 17 of 20 samples are finished, 0 failed; wait for it"));
  const std::set<int> first = set_of(open("set = 'run'\nval_fraction = 0\n"), Split::kTrain);
  EXPECT_EQ(first.size(), 17u);
  const std::string hash = open("set = 'run'\n")->info().sources[0].sha256;
  simulate(20, {}, {});  // the simulation continues
  EXPECT_EQ(set_of(open("set = 'run'\nval_fraction = 0\n"), Split::kTrain), first);
  EXPECT_EQ(open("set = 'run'\n")->info().sources[0].sha256, hash);
  EXPECT_EQ(set_of(open("set = 'later'\nval_fraction = 0\n"), Split::kTrain).size(), 20u);
  EXPECT_NE(open("set = 'later'\n")->info().sources[0].sha256, hash);
}

TEST_F(SimulatedTest, OfSeveralProcessesOneRecordsTheSet) {
  simulate(20, {7, 8, 9}, {});
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      const auto files = make_posix_files();
      text = simulation_manifest_text(sample_set(*files, path(), "race"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  // The set exists already: the recorded one wins.
  const SimulationManifest before = sample_set(*files_, path(), "race");
  simulate(20, {}, {});
  EXPECT_EQ(sample_set(*files_, path(), "race").finished, before.finished);
  for (const DirectoryEntry& entry : files_->list(path() + "/sets"))
    EXPECT_TRUE(entry.name.ends_with(".json")) << entry.name;
}

TEST_F(SimulatedTest, FieldsAreChosenAndNamed) {
  simulate(10, {}, {});
  const Made made = open("inputs = ['x=a']\ntargets = ['y=u']\nval_fraction = 0\n");
  EXPECT_EQ(made->info().fields[0].name, "x");
  EXPECT_EQ(made->info().fields[1].name, "y");
  EXPECT_THAT(error_of([&] { open("inputs = ['b']\n"); }), HasSubstr("has no field 'b'; it has a, u"));
  EXPECT_THAT(error_of([&] { open("inputs = ['x=a']\ntargets = ['x=u']\n"); }),
              HasSubstr("'x' names two fields"));
}

TEST_F(SimulatedTest, TakesTheLowestIndices) {
  simulate(20, {}, {0});
  EXPECT_EQ(set_of(open("samples = 5\nval_fraction = 0\n"), Split::kTrain), (std::set<int>{1, 2, 3, 4, 5}));
  EXPECT_THAT(error_of([&] { open("samples = 21\n"); }), HasSubstr("samples is 21, and the simulation in"));
}

TEST_F(SimulatedTest, SaysWhatIsWrong) {
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("there is no simulation in"));
  simulate(4, {0, 1, 2, 3}, {});
  EXPECT_THAT(error_of([&] { open("set = 'a'\n"); }), HasSubstr("has nothing to train on yet"));
  simulate(4, {}, {});
  EXPECT_THAT(error_of([&] { open("set = '../a'\n"); }), HasSubstr("set is '../a'; expected letters"));
  EXPECT_THAT(error_of([&] { open("val_fraction = 0.5\ntest_fraction = 0.5\n"); }),
              HasSubstr("leave nothing to train on"));
  std::array<double, 3> three{};
  write_npy(*files_, simulation_sample_folder(path(), 2) + "/u.npy", {three.data(), Shape{3}, DType::kF64});
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("000002/u.npy': expected f64 [1], found f64 [3]"));
  files_->write_text_atomically(simulation_manifest_path(path()), "{\"format\": 1}\n");
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("manifest.json: manifest lacks 'version'"));
}

TEST_F(SimulatedTest, AFileThatVanishesEndsTheRun) {
  simulate(4, {}, {});
  const Made made = open("val_fraction = 0\n");
  Batch batch(*made.data);
  files_->remove(simulation_sample_folder(path(), 1) + "/u.npy");
  std::string said;
  try {
    for (std::int64_t i = 0; i < 4; ++i)
      made->read({.split = Split::kTrain, .first = i, .count = 1}, batch.views);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    said = error.what();
  }
  EXPECT_THAT(said, HasSubstr("000001/u.npy' cannot be read: No such file or directory"));
}

TEST_F(SimulatedTest, ReadsAllocateNothing) {
  simulate(8, {}, {});
  const Made made = open("val_fraction = 0\n");
  Batch batch(*made.data);
  made->read({.split = Split::kTrain, .first = 0, .count = 1}, batch.views);
  const std::int64_t before = testing::allocation_count();
  for (std::int64_t i = 0; i < 8; ++i)
    made->read({.split = Split::kTrain, .first = i, .count = 1}, batch.views);
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::simulated
