// The store under damage: every flipped bit and every truncation of a small checkpoint is noticed, in larger
// ones those of every block, and the next older generation takes over; damaged manifests and reports give
// errors, never crashes.
#include <tenon/checkpoint.hpp>

#include "store/manifest.hpp"
#include "store/testing/store_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tenon::store_damage_test {
namespace {

using ::testing::ElementsAre;
using testing::folder_names;
using ::testing::HasSubstr;
using testing::MemoryFiles;
using testing::save_as_world;
using testing::save_step;
using testing::TinyModel;

constexpr char kFolder[] = "/checkpoints";

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    save_step(store_, 1, 1);
    save_step(store_, 2, 2);
    for (const DirectoryEntry& entry : files_.list(newest_)) {
      paths_.push_back(newest_ + "/" + entry.name);
    }
    ASSERT_EQ(paths_.size(), 3u);
  }

  // Recovery must find step 1 whole, move step 2 aside, and say which file is at fault.
  void expect_noticed(const std::string& path) {
    const RestorePoint point = store_.recover(false);
    ASSERT_EQ(point.step, 1);
    ASSERT_EQ(point.rejected.size(), 1u);
    EXPECT_EQ(point.rejected[0].step, 2);
    EXPECT_EQ(point.rejected[0].path, newest_ + ".bad");
    EXPECT_THAT(point.rejected[0].reason, HasSubstr(path));
    EXPECT_THAT(folder_names(files_, kFolder), ElementsAre("step-1", "step-2.bad"));
    files_.rename(newest_ + ".bad", newest_);
  }

  MemoryFiles files_;
  CheckpointStore store_{files_, kFolder, {}};
  const std::string newest_ = std::string(kFolder) + "/step-2";
  std::vector<std::string> paths_;
};

TEST_F(Damage, P15_F6_EveryFlippedBitIsNoticed) {
  for (const std::string& path : paths_) {
    const std::string original = files_.content(path);
    // The manifest has no blocks.
    const std::string at = path.ends_with(".json") ? path : path + ": block 0 (";
    for (std::size_t bit = 0; bit < 8 * original.size(); ++bit) {
      std::string damaged = original;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      files_.overwrite(path, damaged);
      expect_noticed(at);
      if (HasFailure()) FAIL() << path << " bit " << bit;
    }
    files_.overwrite(path, original);
  }
  EXPECT_EQ(store_.recover(false).step, 2) << "undamaged again";
}

TEST_F(Damage, P15_ReadersNoticeWithoutRecovery) {
  const std::string path = newest_ + "/rank1.safetensors";
  std::string damaged = files_.content(path);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  files_.overwrite(path, damaged);
  CheckpointReader reader = store_.open(2);
  TinyModel model(2);
  try {
    model.equals(reader);
    FAIL() << "a damaged block was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(path + ": block 0 (bytes 0 to"));
    EXPECT_THAT(error.what(), HasSubstr("the manifest says"));
  }
}

TEST_F(Damage, P15_BlocksThatOneTensorFillsAreReadAndCheckedToo) {
  // Five blocks, each with bytes of its own, of which the middle ones belong to one tensor alone.
  TinyModel model(3);
  model.add("large", DType::kF32, Shape{1100, 1001}, 3);
  std::vector<std::byte>& bytes = model.bytes("large");
  for (std::size_t at = 0; at < bytes.size(); at += 1024) bytes[at] = static_cast<std::byte>(at >> 20);
  SaveRequest request;
  request.step = 3;
  ASSERT_EQ(save_as_world(store_, model, request, 1).status, SaveStatus::kCommitted);
  const std::string path = std::string(kFolder) + "/step-3/rank0.safetensors";
  const std::string original = files_.content(path);
  ASSERT_GT(original.size(), std::size_t{4} << 20);
  CheckpointReader reader = store_.open(3);
  EXPECT_TRUE(model.equals(reader));
  for (std::size_t block = 0; block < 5; ++block) {
    std::string damaged = original;
    damaged[(block << 20) + 5000] ^= 1;
    files_.overwrite(path, damaged);
    CheckpointReader fresh = store_.open(3);
    try {
      model.equals(fresh);
      FAIL() << "a damaged block was read";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path + ": block " + std::to_string(block) + " (bytes "));
    }
  }
}

TEST_F(Damage, P15_F6_EveryTruncationAndExtensionIsNoticed) {
  for (const std::string& path : paths_) {
    const std::string original = files_.content(path);
    for (std::size_t size = 0; size < original.size(); ++size) {
      files_.overwrite(path, original.substr(0, size));
      expect_noticed(path);
      if (HasFailure()) FAIL() << path << " cut to " << size;
    }
    files_.overwrite(path, original + " ");
    expect_noticed(path);
    files_.overwrite(path, original);
  }
}

// Files of three blocks each: the message names the block, or the length where it is cut.
TEST_F(Damage, P15_DamageOfAnyBlockIsNamed) {
  TinyModel model(2);
  model.add("large", DType::kF32, Shape{1400, 1001}, 2);
  SaveRequest request;
  request.step = 2;
  ASSERT_EQ(save_as_world(store_, model, request, 2).status, SaveStatus::kCommitted);
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  std::mt19937_64 random(15);
  for (const char* name : {"/rank0.safetensors", "/rank1.safetensors"}) {
    const std::string path = newest_ + name;
    const std::string original = files_.content(path);
    const std::size_t blocks = (original.size() + kBlock - 1) / kBlock;
    ASSERT_EQ(blocks, 3u);
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t begin = block * kBlock;
      const std::size_t end = std::min(begin + kBlock, original.size());
      for (const std::size_t at : {begin, begin + random() % (end - begin), end - 1}) {
        std::string damaged = original;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
        files_.overwrite(path, damaged);
        expect_noticed(path + ": block " + std::to_string(block) + " (bytes " + std::to_string(begin) +
                       " to " + std::to_string(end) + ")");
      }
      for (const std::size_t size : {begin, begin + 1, end - 1}) {
        files_.overwrite(path, original.substr(0, size));
        expect_noticed(path + ": " + std::to_string(size) + " bytes, the manifest says " +
                       std::to_string(original.size()));
      }
      files_.overwrite(path, original);
      if (HasFailure()) FAIL() << path << " block " << block;
    }
  }
  EXPECT_EQ(store_.recover(false).step, 2) << "undamaged again";
}

TEST_F(Damage, P15_F6_MissingSwappedAndStaleFilesAreNoticed) {
  for (const std::string& path : paths_) {
    files_.rename(path, "/aside");
    expect_noticed(path);
    files_.rename("/aside", path);
  }
  const auto swap = [&](const std::string& one, const std::string& other) {
    const std::string content = files_.content(one);
    files_.overwrite(one, files_.content(other));
    files_.overwrite(other, content);
  };
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    for (std::size_t j = i + 1; j < paths_.size(); ++j) {
      swap(paths_[i], paths_[j]);
      expect_noticed(paths_[i]);
      swap(paths_[i], paths_[j]);
    }
  }

  const std::string manifest = newest_ + "/MANIFEST.json";
  const std::string own = files_.content(manifest);
  files_.overwrite(manifest, files_.content(std::string(kFolder) + "/step-1/MANIFEST.json"));
  expect_noticed(newest_);
  files_.overwrite(manifest, own);
  EXPECT_EQ(store_.recover(false).step, 2);
}

// They have one name, one size and one structure: only their bytes tell them apart.
TEST_F(Damage, P15_F6_SwappedShardsOfTwoGenerationsAreNoticed) {
  for (const char* name : {"/rank0.safetensors", "/rank1.safetensors"}) {
    MemoryFiles files;
    CheckpointStore store(files, kFolder, {.keep = 3});
    for (const std::int64_t step : {1, 2, 3}) save_step(store, step, 2);
    const std::string older = std::string(kFolder) + "/step-2" + name;
    const std::string newer = std::string(kFolder) + "/step-3" + name;
    const std::string content = files.content(older);
    ASSERT_EQ(content.size(), files.content(newer).size());
    files.overwrite(older, files.content(newer));
    files.overwrite(newer, content);
    const RestorePoint point = store.recover(false);
    EXPECT_EQ(point.step, 1);
    ASSERT_EQ(point.rejected.size(), 2u);
    EXPECT_THAT(point.rejected[0].reason, HasSubstr(newer + ": block 0 ("));
    EXPECT_THAT(point.rejected[1].reason, HasSubstr(older + ": block 0 ("));
  }
}

TEST_F(Damage, ARejectedStepCanBeSavedAgain) {
  for (int round = 0; round < 2; ++round) {
    files_.overwrite(newest_ + "/MANIFEST.json", "{}");
    EXPECT_EQ(store_.recover(false).step, 1);
    EXPECT_EQ(save_step(store_, 2, 1).status, SaveStatus::kCommitted);
    EXPECT_EQ(store_.recover(false).step, 2);
  }
  EXPECT_THAT(folder_names(files_, kFolder), ElementsAre("step-1", "step-2", "step-2.bad"));
}

TEST_F(Damage, P15_IncrementsFallWithTheirBase) {
  TinyModel newer(3);
  const SaveItem item{"bias", newer.view("bias"), Shape{5}, Shape{0}};
  SaveRequest request;
  request.step = 3;
  request.base = 2;
  request.items = {&item, 1};
  SoloExchange solo;
  ASSERT_EQ(store_.save(request, 0, 1, solo).status, SaveStatus::kCommitted);
  const std::string path = newest_ + "/rank0.safetensors";
  std::string damaged = files_.content(path);
  damaged[damaged.size() / 2] = static_cast<char>(~damaged[damaged.size() / 2]);
  files_.overwrite(path, damaged);
  const RestorePoint point = store_.recover(false);
  EXPECT_EQ(point.step, 1);
  ASSERT_EQ(point.rejected.size(), 2u);
  EXPECT_EQ(point.rejected[0].step, 3);
  EXPECT_EQ(point.rejected[1].step, 2);
}

// Four generations go for one fault: one older generation takes their place, once.
TEST(DamageOfChains, P15_OneFaultTakesAllThatIsBuiltOnItAtOnce) {
  for (const char* file : {"rank0.safetensors", "MANIFEST.json"}) {
    MemoryFiles files;
    CheckpointStore store(files, kFolder, {.keep = 5});
    save_step(store, 1, 1);
    save_step(store, 2, 1);
    SoloExchange solo;
    for (const std::int64_t step : {3, 4, 5}) {
      TinyModel newer(step);
      const SaveItem item{"bias", newer.view("bias"), Shape{5}, Shape{0}};
      SaveRequest request;
      request.step = step;
      request.base = step - 1;
      request.items = {&item, 1};
      ASSERT_EQ(store.save(request, 0, 1, solo).status, SaveStatus::kCommitted);
    }
    const std::string path = std::string(kFolder) + "/step-2/" + file;
    std::string damaged = files.content(path);
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
    files.overwrite(path, damaged);
    const RestorePoint point = store.recover(false);
    EXPECT_EQ(point.step, 1);
    ASSERT_EQ(point.rejected.size(), 4u);
    for (const RejectedGeneration& bad : point.rejected)
      EXPECT_EQ(bad.because, bad.step == 2 ? -1 : 2) << bad.step;
    EXPECT_THAT(folder_names(files, kFolder),
                ElementsAre("step-1", "step-2.bad", "step-3.bad", "step-4.bad", "step-5.bad"));
  }
}

// Generations of an abandoned timeline are no older state of this one.
TEST(DamageOfTimelines, P15_WhatTakesThePlaceOfADamagedOneIsOlder) {
  MemoryFiles files;
  CheckpointStore store(files, kFolder, {.keep = 4});
  for (const std::int64_t step : {10, 20, 30}) save_step(store, step, 1);
  TinyModel model(15);
  SaveRequest request;
  request.step = 15;
  request.timeline = 1;
  ASSERT_EQ(save_as_world(store, model, request, 1).status, SaveStatus::kCommitted);
  EXPECT_EQ(store.recover(false).step, 15);
  const std::string path = std::string(kFolder) + "/step-15/rank0.safetensors";
  files.overwrite(path, files.content(path) + " ");
  EXPECT_EQ(store.recover(false).step, 10);
}

TEST(Distrust, SetsAsideAGenerationAndWhatIsBuiltOnItForGood) {
  MemoryFiles files;
  CheckpointStore store(files, kFolder, {.keep = 4});
  for (const std::int64_t step : {1, 2}) save_step(store, step, 1);
  TinyModel newer(3);
  const SaveItem item{"bias", newer.view("bias"), Shape{5}, Shape{0}};
  SaveRequest request;
  request.step = 3;
  request.base = 2;
  request.items = {&item, 1};
  SoloExchange solo;
  ASSERT_EQ(store.save(request, 0, 1, solo).status, SaveStatus::kCommitted);
  const std::vector<RejectedGeneration> gone = store.distrust(2, "its canary differs");
  ASSERT_EQ(gone.size(), 2u);
  EXPECT_EQ(gone[0].step, 2);
  EXPECT_EQ(gone[0].because, -1);
  EXPECT_EQ(gone[0].path, std::string(kFolder) + "/step-2.distrusted");
  EXPECT_EQ(gone[1].step, 3);
  EXPECT_EQ(gone[1].because, 2);
  EXPECT_EQ(gone[1].reason, "its canary differs");
  EXPECT_THAT(folder_names(files, kFolder), ElementsAre("step-1", "step-2.distrusted", "step-3.distrusted"));
  EXPECT_THAT(store.generations(), ElementsAre(1));
  EXPECT_EQ(CheckpointStore(files, kFolder, {}).recover(false).step, 1) << "another process";
  // The slot can be saved again, and be distrusted again.
  ASSERT_EQ(save_step(store, 2, 1).status, SaveStatus::kCommitted);
  EXPECT_EQ(store.recover(false).step, 2);
  EXPECT_EQ(store.distrust(2, "again").size(), 1u);
  EXPECT_EQ(store.recover(false).step, 1);
  EXPECT_THROW(store.distrust(2, "it is not there"), FileError);
}

TEST(Distrust, LooksForNothingNewerThanItIsTold) {
  MemoryFiles files;
  CheckpointStore store(files, kFolder, {.keep = 4});
  for (const std::int64_t step : {1, 2, 3}) save_step(store, step, 1);
  EXPECT_EQ(store.recover(false, 2).step, 2);
  EXPECT_EQ(store.recover(false, 0).step, -1);
}

// Bad structure with a correct CRC: what a faulty writer, or a malicious one, could produce.
TEST_F(Damage, ManifestsOfAnyContentGiveErrorsNeverCrashes) {
  const std::string original = files_.content(paths_[0]);
  std::uint32_t crc = 0;
  const checkpoint::Manifest manifest = checkpoint::parse_manifest(original, "m", &crc);
  EXPECT_EQ(checkpoint::manifest_text(manifest, &crc), original);

  std::mt19937 random(3);
  const std::string_view spice = "{}[]\":,0123456789-.eabcdefnull\\";
  const std::string tail = ",\n\"manifest_crc32c\": \"00000000\"\n}\n";
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string body = original.substr(0, original.size() - tail.size());
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % body.size();
      switch (random() % 4) {
        case 0:
          body[at] = spice[random() % spice.size()];
          break;
        case 1:
          body.erase(at, 1 + random() % 6);
          break;
        case 2:
          body.insert(at, 1, spice[random() % spice.size()]);
          break;
        default:
          body.insert(at, body.substr(random() % body.size(), random() % 50));
          break;
      }
    }
    const std::uint32_t right = crc32c(std::as_bytes(std::span(body)));
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", right);
    files_.overwrite(paths_[0], body + ",\n\"manifest_crc32c\": \"" + digits + "\"\n}\n");
    try {
      store_.verify(2);
      CheckpointReader reader = store_.open(2);
      for (const TensorSpec& spec : reader.tensors()) {
        if (spec.shape.elements() > 10'000) continue;
        std::vector<std::byte> out(dtype_bytes(spec.dtype, spec.shape.elements()));
        reader.read(spec.name, {out.data(), spec.shape, spec.dtype});
      }
      ++accepted;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("step-2"));
    }
  }
  EXPECT_GT(accepted, 0) << "edits inside meta text leave a valid manifest";
  EXPECT_LT(accepted, 1000);
}

TEST_F(Damage, ReportsOfAnyContentGiveErrorsNeverCrashes) {
  TinyModel model(9);
  const std::vector<SaveItem> items = model.items(0, 1);
  SaveRequest request;
  request.step = 9;
  request.items = items;
  const std::string report = store_.write_part(request, 0, 1);
  std::mt19937 random(4);
  for (std::size_t size = 0; size < report.size() - 2; ++size) {
    const std::string cut = report.substr(0, size);
    EXPECT_EQ(store_.commit(9, {&cut, 1}).status, SaveStatus::kAborted) << size;
  }
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = report;
    for (int edit = 0; edit < 3; ++edit) damaged[random() % damaged.size()] = static_cast<char>(random());
    store_.commit(9, {&damaged, 1});
  }
  EXPECT_EQ(store_.recover(false).step, 2);
}

}  // namespace
}  // namespace tenon::store_damage_test
