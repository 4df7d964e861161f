// The folder of results: continued, refused, locked, and never without finished samples.
#include "simulate/result_folder.hpp"

#include "simulate/sample_writer.hpp"
#include "store/testing/faulty_files.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/npy.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace tenon::simulate {
namespace {

using ::testing::HasSubstr;

class ResultFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tenon-simulate-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { remove_tree(*files_, root_); }

  SimulationManifest wanted() const {
    SimulationManifest manifest;
    manifest.simulator = "darcy";
    manifest.plugin = "tenon.porous";
    manifest.plugin_version = "0.1.0";
    manifest.config = "[simulator]\ntype = \"darcy\"\ngrid = 85\n";
    manifest.samples = 4;
    manifest.fields = {{"a", DType::kF32, Shape{2}, false}, {"u", DType::kF32, Shape{3}, true}};
    return manifest;
  }
  /// Writes a sample as a worker does.
  std::string write_sample(FileSystem& files, std::int64_t index) {
    const ArrayMemory arrays(wanted().fields);
    arrays.views()[0].as<float>()[0] = static_cast<float>(index);
    write_arrays(files, simulation_sample_folder(folder(), index), wanted().fields, arrays.views());
    return simulation_digest(arrays.views());
  }
  std::string folder() const { return root_ + "/sims"; }
  std::string refusal(const SimulationManifest& manifest) {
    try {
      const ResultFolder again(*files_, folder(), manifest);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  }

  std::unique_ptr<FileSystem> files_ = make_posix_files();
  std::string root_;
};

TEST_F(ResultFolderTest, IsContinued) {
  std::string digest;
  {
    ResultFolder results(*files_, folder(), wanted());
    EXPECT_EQ(results.taken_up(), 0);
    digest = write_sample(*files_, 0);
    results.manifest().finished[0] = digest;
    results.manifest().failed[3] = {"error", "CFL", 1};
    results.save(true);
  }
  ResultFolder again(*files_, folder(), wanted());
  EXPECT_EQ(again.taken_up(), 1);
  EXPECT_EQ(again.manifest().finished, (std::map<std::int64_t, std::string>{{0, digest}}));
  EXPECT_EQ(again.manifest().failed.at(3).cause, "CFL");
}

TEST_F(ResultFolderTest, TakesUpWhatTheManifestDoesNotKnowYet) {
  std::string digest;
  {
    ResultFolder results(*files_, folder(), wanted());
    digest = write_sample(*files_, 2);  // and then the program is killed
    files_->make_directories(partial_path(simulation_sample_folder(folder(), 1)));
  }
  ResultFolder again(*files_, folder(), wanted());
  EXPECT_EQ(again.manifest().finished, (std::map<std::int64_t, std::string>{{2, digest}}));
  EXPECT_FALSE(files_->exists(partial_path(simulation_sample_folder(folder(), 1))));
  EXPECT_EQ(read_simulation(*files_, folder()).finished.size(), 1u);
}

TEST_F(ResultFolderTest, WhatIsGoneIsMadeAgain) {
  {
    ResultFolder results(*files_, folder(), wanted());
    results.manifest().finished[0] = write_sample(*files_, 0);
    results.manifest().finished[1] = write_sample(*files_, 1);
    results.save(true);
  }
  remove_tree(*files_, simulation_sample_folder(folder(), 0));
  ResultFolder again(*files_, folder(), wanted());
  EXPECT_EQ(again.manifest().finished.count(0), 0u);
  EXPECT_EQ(again.manifest().finished.count(1), 1u);
}

TEST_F(ResultFolderTest, MaySayMoreSamplesButNotFewer) {
  { const ResultFolder results(*files_, folder(), wanted()); }
  SimulationManifest more = wanted();
  more.samples = 9;
  { const ResultFolder results(*files_, folder(), more); }
  EXPECT_THAT(refusal(wanted()), HasSubstr("was made for 9 samples, and [simulate] samples is 4"));
}

TEST_F(ResultFolderTest, AnotherSimulationIsRefusedWithTheDifference) {
  { const ResultFolder results(*files_, folder(), wanted()); }
  SimulationManifest other = wanted();
  other.config = "[simulator]\ntype = \"darcy\"\ngrid = 421\n";
  EXPECT_THAT(refusal(other), HasSubstr("holds another simulation: simulator.grid is 85 there and 421 here"));
  other = wanted();
  other.seed = 2;
  EXPECT_THAT(refusal(other), HasSubstr("simulate.seed is 1 there and 2 here"));
  other = wanted();
  other.plugin_version = "0.2.0";
  EXPECT_THAT(refusal(other), HasSubstr("the version of tenon.porous is 0.1.0 there and 0.2.0 here"));
  other = wanted();
  other.simulator = "navier_stokes";
  EXPECT_THAT(refusal(other), HasSubstr("the simulator is darcy there and navier_stokes here"));
}

TEST_F(ResultFolderTest, FilesOfAnotherShapeAreRefused) {
  {
    ResultFolder results(*files_, folder(), wanted());
    results.manifest().finished[0] = write_sample(*files_, 0);
    results.save(true);
  }
  std::array<float, 5> five{};
  write_npy(*files_, simulation_sample_folder(folder(), 0) + "/u.npy", {five.data(), Shape{5}, DType::kF32});
  EXPECT_THAT(refusal(wanted()), HasSubstr("000000/u.npy': expected f32 [3], found f32 [5]"));
}

TEST_F(ResultFolderTest, TwoProcessesDoNotShareIt) {
  const ResultFolder first(*files_, folder(), wanted());
  EXPECT_THAT(refusal(wanted()),
              HasSubstr("is writing to '" + folder() + "'; wait for it, or choose another"));
}

TEST_F(ResultFolderTest, AFullDiskLosesNothingThatWasFinished) {
  {
    ResultFolder results(*files_, folder(), wanted());
    results.manifest().finished[0] = write_sample(*files_, 0);
    results.save(true);
  }
  // For any free space, sample 1 is there whole or not at all, and sample 0 is.
  bool fitted = false;
  for (std::int64_t budget = 0; !fitted; budget += 64) {
    testing::FaultyFiles full(*files_);
    full.arm({.byte_budget = budget});
    try {
      write_sample(full, 1);
      fitted = true;
    } catch (const FileError& error) {
      EXPECT_EQ(error.code(), ENOSPC);
    }
    ResultFolder again(*files_, folder(), wanted());
    EXPECT_EQ(again.manifest().finished.count(0), 1u);
    EXPECT_EQ(again.manifest().finished.count(1), fitted ? 1u : 0u) << budget;
  }
}

TEST_F(ResultFolderTest, AnyFailedOperationLeavesASampleWholeOrAbsent) {
  testing::FaultyFiles counted(*files_);
  counted.arm({});
  files_->make_directories(folder() + "/samples");
  write_sample(counted, 1);
  for (std::int64_t operation = 0; operation < counted.operations(); ++operation) {
    remove_tree(*files_, simulation_sample_folder(folder(), 1));
    testing::FaultyFiles broken(*files_);
    broken.arm({.fail_at = operation, .dead_after = true});
    EXPECT_THROW(write_sample(broken, 1), FileError) << operation;
    if (!files_->exists(simulation_sample_folder(folder(), 1))) continue;
    EXPECT_NO_THROW(check_simulation_arrays(*files_, simulation_sample_folder(folder(), 1), wanted().fields));
  }
}

}  // namespace
}  // namespace tenon::simulate
