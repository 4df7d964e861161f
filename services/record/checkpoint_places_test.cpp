// Generations in several places: the newest sound one of all serves, whichever levels are absent, damaged or
// of another run; each place keeps as many as it was told.
#include "record/checkpoint_places.hpp"

#include "store/testing/store_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace tenon::checkpoint_places_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MemoryFiles;
using testing::TinyModel;

constexpr int kLocal = 0, kDisk = 1;  ///< places of the tests, the cheapest first

/// A run with two places beside its folder.
class Places : public ::testing::Test {
 protected:
  Places() {
    files_.make_directories("/runs/a/1");
    places_ = opened("owner a");
  }

  std::unique_ptr<CheckpointPlaces> opened(const std::string& owner) {
    return std::make_unique<CheckpointPlaces>(
        files_, own_, std::vector<PlaceSpec>{{"local", "/fast", 2}, {"disk", "/slow", 3}}, owner,
        [](const char*) {});
  }
  std::string folder(int place) const { return places_->at(place).folder(); }
  std::string path(int place, std::int64_t step) const {
    return folder(place) + "/step-" + std::to_string(step);
  }
  /// Files of a generation.
  std::vector<std::string> files_of(int place, std::int64_t step) {
    std::vector<std::string> paths;
    for (const DirectoryEntry& entry : files_.list(path(place, step)))
      paths.push_back(path(place, step) + "/" + entry.name);
    return paths;
  }
  void save(int place, std::int64_t step, std::int64_t timeline = 0) {
    TinyModel model(step);
    SaveRequest request;
    request.step = step;
    request.timeline = timeline;
    const SaveResult saved = testing::save_as_world(places_->at(place), model, request, 2);
    ASSERT_EQ(saved.status, SaveStatus::kCommitted) << saved.error;
  }
  void flip(const std::string& file, std::size_t bit) {
    std::string bytes = files_.content(file);
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    files_.overwrite(file, bytes);
  }
  void damage(int place, std::int64_t step) { flip(files_of(place, step).back(), 8 * 200 + 3); }
  /// What recover() finds, whose content must be that of its step.
  void expect_found(int place, std::int64_t step) {
    const PlacedPoint point = places_->recover(true);
    EXPECT_EQ(point.step, step);
    EXPECT_EQ(point.place, place);
    if (point.step < 0) return;
    CheckpointReader reader = places_->at(point.place).open(point.step);
    TinyModel expected(point.step);
    EXPECT_TRUE(expected.equals(reader));
  }

  MemoryFiles files_;
  CheckpointStore own_{files_, "/runs/a/1/checkpoints", {}};
  std::unique_ptr<CheckpointPlaces> places_;
};

TEST_F(Places, TheNewestServesAndOfEquallyNewOnesTheCheapest) {
  expect_found(kRunFolder, -1);
  save(kRunFolder, 10);
  expect_found(kRunFolder, 10);
  save(kLocal, 12);
  expect_found(kLocal, 12);
  save(kDisk, 14);
  expect_found(kDisk, 14);
  save(kRunFolder, 16);
  expect_found(kRunFolder, 16);
  save(kDisk, 16);
  expect_found(kDisk, 16);
  save(kLocal, 16);
  expect_found(kLocal, 16);
}

TEST_F(Places, ALaterTimelineWinsOverALaterStepInAnyPlace) {
  save(kLocal, 30, 0);
  save(kDisk, 20, 1);
  save(kRunFolder, 25, 0);
  expect_found(kDisk, 20);
}

TEST_F(Places, EachLevelServesWhereThoseBeforeAreAbsent) {
  save(kRunFolder, 10);
  save(kDisk, 12);
  save(kLocal, 14);
  remove_tree(files_, "/fast");
  expect_found(kDisk, 12);
  remove_tree(files_, "/slow");
  expect_found(kRunFolder, 10);
  remove_tree(files_, own_.folder());
  expect_found(kRunFolder, -1);
}

TEST_F(Places, EachLevelServesWhereThoseBeforeAreDamaged) {
  save(kRunFolder, 10);
  save(kDisk, 12);
  save(kLocal, 14);
  save(kLocal, 16);
  for (const auto& [place, step, next_place, next] :
       std::vector<std::tuple<int, int, int, int>>{{kLocal, 16, kLocal, 14},
                                                   {kLocal, 14, kDisk, 12},
                                                   {kDisk, 12, kRunFolder, 10},
                                                   {kRunFolder, 10, kRunFolder, -1}}) {
    damage(place, step);
    expect_found(next_place, next);
    EXPECT_TRUE(files_.exists(path(place, step) + ".bad")) << "put aside, not lost";
  }
}

TEST_F(Places, AllDamagedLevelsAreReportedByPathInOneSearch) {
  save(kRunFolder, 10);
  save(kDisk, 12);
  save(kLocal, 14);
  damage(kLocal, 14);
  damage(kDisk, 12);
  const PlacedPoint point = places_->recover(true);
  EXPECT_EQ(point.step, 10);
  ASSERT_EQ(point.rejected.size(), 2u);
  EXPECT_EQ(point.rejected[0].path, path(kLocal, 14) + ".bad");
  EXPECT_EQ(point.rejected[1].path, path(kDisk, 12) + ".bad");
  EXPECT_THAT(rejected_text(point.rejected[0]),
              HasSubstr("checkpoint of slot 14 is damaged and was put aside as /fast/owner a/step-14.bad: "));
}

TEST_F(Places, AGenerationWithoutASoundManifestIsPutAsideAlsoInAPlaceThatDoesNotServe) {
  save(kRunFolder, 10);
  save(kLocal, 14);
  flip(files_of(kLocal, 14).front(), 100);
  const PlacedPoint point = places_->recover(true);
  EXPECT_EQ(point.step, 10);
  ASSERT_EQ(point.rejected.size(), 1u);
  EXPECT_EQ(point.rejected[0].step, 14);
}

TEST_F(Places, WhatACrashLeftOfAReplacementIsPutBackInEveryPlace) {
  save(kRunFolder, 10);
  save(kLocal, 14);
  files_.rename(path(kLocal, 14), path(kLocal, 14) + ".old");
  files_.make_directories(own_.folder() + "/step-12.tmp");
  expect_found(kLocal, 14);
  EXPECT_FALSE(files_.exists(own_.folder() + "/step-12.tmp"));
}

TEST_F(Places, OlderPlacesAreNotReadWhereANewerOneIsSound) {
  save(kRunFolder, 10);
  save(kLocal, 14);
  damage(kRunFolder, 10);
  expect_found(kLocal, 14);
  EXPECT_TRUE(files_.exists(path(kRunFolder, 10))) << "it was read, and put aside";
}

TEST_F(Places, RetentionIsOfEachPlaceAlone) {
  for (std::int64_t step = 1; step <= 9; ++step) {
    save(kLocal, step);
    if (step % 2 == 0) save(kDisk, step);
    if (step % 4 == 0) save(kRunFolder, step);
  }
  EXPECT_THAT(places_->at(kLocal).generations(), ElementsAre(8, 9));
  EXPECT_THAT(places_->at(kDisk).generations(), ElementsAre(4, 6, 8));
  EXPECT_THAT(places_->at(kRunFolder).generations(), ElementsAre(4, 8));
  EXPECT_THAT(places_->generations(), ElementsAre(4, 6, 8, 9));
  EXPECT_EQ(places_->place_of(9), kLocal);
  EXPECT_EQ(places_->place_of(6), kDisk);
  EXPECT_EQ(places_->place_of(4), kDisk) << "before the run's folder";
  EXPECT_EQ(places_->place_of(5), kRunFolder);
}

TEST_F(Places, RunsThatShareAPlaceDoNotSeeEachOther) {
  save(kRunFolder, 10);
  save(kLocal, 14);
  const std::string first = folder(kLocal);
  places_ = opened("owner b");
  EXPECT_NE(folder(kLocal), first);
  expect_found(kRunFolder, 10);
  save(kLocal, 12);
  expect_found(kLocal, 12);
  places_ = opened("owner a");
  expect_found(kLocal, 14);
}

TEST_F(Places, AGenerationOfAnotherRunIsRefusedByName) {
  save(kRunFolder, 10);
  save(kLocal, 12);
  const std::string theirs = path(kLocal, 12);
  places_ = opened("owner b");
  files_.rename(theirs, path(kLocal, 12));  // someone moved it here
  const PlacedPoint point = places_->recover(true);
  EXPECT_EQ(point.step, 10);
  ASSERT_EQ(point.rejected.size(), 1u);
  EXPECT_THAT(point.rejected[0].reason, HasSubstr("it is of another run: owner owner a, expected owner b"));
  // Nor does one without an owner count.
  TinyModel model(14);
  SaveRequest request;
  request.step = 14;
  CheckpointStore anonymous(files_, folder(kLocal), {});
  ASSERT_EQ(testing::save_as_world(anonymous, model, request, 1).status, SaveStatus::kCommitted);
  EXPECT_THAT(places_->recover(true).rejected.at(0).reason, HasSubstr("owner none, expected owner b"));
}

TEST_F(Places, MixedGenerationsAreLeftOutWhereConsistentOnesAreWanted) {
  save(kRunFolder, 10);
  TinyModel model(12);
  SaveRequest request;
  request.step = 12;
  request.consistent = false;
  ASSERT_EQ(testing::save_as_world(places_->at(kLocal), model, request, 1).status, SaveStatus::kCommitted);
  EXPECT_EQ(places_->recover(true).step, 10);
  EXPECT_EQ(places_->recover(false).step, 12);
}

TEST(PlaceOwners, AreOfTheFolderAndOfItsNumber) {
  const auto files = make_posix_files();
  const std::string base = ::testing::TempDir() + "owners" + std::to_string(::getpid());
  files->make_directories(base + "/1");
  files->make_directories(base + "/2");
  const std::string first = run_owner(*files, base + "/1");
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(run_owner(*files, base + "/1"), first) << "a resumed run";
  EXPECT_EQ(run_owner(*files, base + "/../" + base.substr(base.rfind('/') + 1) + "/1"), first);
  EXPECT_NE(run_owner(*files, base + "/2"), first);
  const std::string id = read_text(*files, base + "/1/run_id", 100);
  files->write_text_atomically(base + "/2/run_id", id);
  EXPECT_NE(run_owner(*files, base + "/2"), first) << "a copy of the folder";
  for (const char* bad : {"", "x", "0123", "../../../../../../../../tmp/evil0\n"}) {
    files->write_text_atomically(base + "/1/run_id", bad);
    EXPECT_NE(run_owner(*files, base + "/1"), first);
    EXPECT_EQ(read_text(*files, base + "/1/run_id", 100).size(), 33u) << "a new one is made";
  }
  remove_tree(*files, base);
}

TEST(PlaceFolders, ThatCannotBeWrittenAreRefusedByName) {
  const auto files = make_posix_files();
  const std::string base = ::testing::TempDir() + "writable" + std::to_string(::getpid());
  files->make_directories(base);
  files->write_text_atomically(base + "/file", "");
  EXPECT_EQ(testing::message_of([&] {
              require_writable(*files, std::vector<PlaceSpec>{{"local", base + "/fine/deep", 2}});
            }),
            "no error");
  EXPECT_THAT(files->list(base + "/fine/deep"), IsEmpty());
  const std::string said = testing::message_of([&] {
    require_writable(*files, std::vector<PlaceSpec>{{"local", base + "/file/below", 2}});
  });
  EXPECT_THAT(said, HasSubstr("checkpoints of place 'local' cannot be kept in " + base + "/file/below: "));
  EXPECT_THAT(said, HasSubstr("Not a directory"));
  EXPECT_THAT(said, HasSubstr("Nothing was trained; make the folder writable, or choose another"));
  remove_tree(*files, base);
}

/// A file system of which one folder fails.
class OneFolderFails final : public FileSystem {
 public:
  OneFolderFails(FileSystem& inner, std::string folder) : inner_(inner), folder_(std::move(folder)) {}
  std::unique_ptr<WritableFile> create(const std::string& path) override { return inner(path).create(path); }
  std::unique_ptr<WritableFile> append_to(const std::string& path) override {
    return inner(path).append_to(path);
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) override { return inner(path).open(path); }
  void rename(const std::string& from, const std::string& to) override { inner(from).rename(from, to); }
  void remove(const std::string& path) override { inner(path).remove(path); }
  void truncate(const std::string& path, std::int64_t size) override { inner(path).truncate(path, size); }
  void sync_directory(const std::string& path) override { inner(path).sync_directory(path); }
  void make_directories(const std::string& path) override { inner(path).make_directories(path); }
  std::vector<DirectoryEntry> list(const std::string& path) override { return inner(path).list(path); }
  bool exists(const std::string& path) override { return inner_.exists(path); }
  void symlink(const std::string& target, const std::string& link) override {
    inner(link).symlink(target, link);
  }
  std::int64_t free_bytes(const std::string& path) override { return inner(path).free_bytes(path); }

  bool fails = false;

 private:
  FileSystem& inner(const std::string& path) {
    if (fails && path.starts_with(folder_)) throw FileError(EIO, "list " + path + ": Input/output error");
    return inner_;
  }
  FileSystem& inner_;
  std::string folder_;
};

TEST(PlaceDisks, ThatFailCountAsAbsentAndAreNamed) {
  MemoryFiles memory;
  OneFolderFails files(memory, "/fast");
  files.make_directories("/run");
  CheckpointStore own(files, "/run/checkpoints", {});
  CheckpointPlaces places(files, own, std::vector<PlaceSpec>{{"local", "/fast", 2}}, "owner", {});
  ASSERT_EQ(testing::save_step(own, 10, 2).status, SaveStatus::kCommitted);
  ASSERT_EQ(testing::save_step(places.at(0), 12, 2).status, SaveStatus::kCommitted);
  files.fails = true;
  const PlacedPoint point = places.recover(true);
  EXPECT_EQ(point.step, 10);
  EXPECT_EQ(point.place, kRunFolder);
  ASSERT_EQ(point.rejected.size(), 1u);
  EXPECT_EQ(
      rejected_text(point.rejected[0]),
      "the checkpoints in /fast/owner cannot be read and count as absent: list /fast/owner: Input/output "
      "error");
  EXPECT_THAT(places.generations(), ElementsAre(10));
}

/// Flipped bits of a run on three levels. Each flip meets fresh folders, since a damaged generation is put
/// aside.
class FlippedBits : public Places {
 protected:
  FlippedBits() {
    save(kRunFolder, 10);
    save(kDisk, 12);
    save(kLocal, 14);
    save(kLocal, 16);
    for (const auto& [place, step] : kOrder)
      for (const std::string& file : files_of(place, step)) originals_[file] = files_.content(file);
  }
  void restore() {
    for (const auto& [file, bytes] : originals_) {
      const std::string generation = parent_path(file);
      if (files_.exists(generation + ".bad")) files_.rename(generation + ".bad", generation);
      if (files_.content(file) != bytes) files_.overwrite(file, bytes);
    }
  }

  /// From the newest to the oldest.
  const std::vector<std::pair<int, std::int64_t>> kOrder = {
      {kLocal, 16}, {kLocal, 14}, {kDisk, 12}, {kRunFolder, 10}};
  std::map<std::string, std::string> originals_;
};

TEST_F(FlippedBits, OfAnyFileOfAnyLevelAreAnsweredByTheNextLevelAndNeverRead) {
  const char* wanted = std::getenv("TENON_MATRIX");
  const int flips = wanted != nullptr && std::string_view(wanted) == "all" ? 10000 : 300;
  std::vector<std::string> files;
  for (const auto& [file, bytes] : originals_) files.push_back(file);
  ASSERT_EQ(files.size(), kOrder.size() * 3) << "manifest and two ranks";
  std::mt19937_64 random(39);
  int answered = 0;
  for (int i = 0; i < flips; ++i) {
    // So many of the newest levels are damaged: the search takes at most one attempt more.
    const std::size_t damaged = 1 + random() % 3;
    for (std::size_t level = 0; level < damaged; ++level) {
      std::vector<std::string> own = files_of(kOrder[level].first, kOrder[level].second);
      const std::string& file = own[random() % own.size()];
      flip(file, random() % (8 * originals_.at(file).size()));
    }
    const PlacedPoint point = places_->recover(true);
    ASSERT_EQ(point.rejected.size(), damaged) << i;
    ASSERT_EQ(point.place, kOrder[damaged].first) << i;
    ASSERT_EQ(point.step, kOrder[damaged].second) << i;
    CheckpointReader reader = places_->at(point.place).open(point.step);
    TinyModel expected(point.step);
    ASSERT_TRUE(expected.equals(reader)) << "other weights, flip " << i;
    ++answered;
    restore();
  }
  EXPECT_EQ(answered, flips);
  expect_found(kLocal, 16);
}

}  // namespace
}  // namespace tenon::checkpoint_places_test
