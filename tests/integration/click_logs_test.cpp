// A file in Criteo's format through the program by the shipped configuration: plain and gzip end in the same
// bits, malformed lines are reported, and a run does not continue under another preprocessing.
#include "run_program.hpp"
#include "testing/criteo_text.hpp"

#include <zlib.h>

namespace tenon::integration::click_logs_test {
namespace {

class ClickLogs : public ::testing::Test {
 protected:
  static std::string lines(std::uint64_t count) {
    std::string text;
    for (std::uint64_t i = 0; i < count; ++i) text += ctr::criteo_line(1, i);
    return text;
  }
  /// configs/base/dlrm_criteo.toml at the size of a test.
  Ended train(const std::string& path, std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"train", TENON_SOURCE_DIR "/configs/base/dlrm_criteo.toml", "--quiet"};
    for (const std::string& set :
         {"data.path=" + path, std::string("run.name=tiny"), std::string("run.steps=6"),
          std::string("run.eval_every=3"), std::string("data.batch=32"), std::string("data.row_cap=200"),
          std::string("device.threads=1"), std::string("recovery={type='full', every=2, async=false}")}) {
      words.insert(words.end(), {"--set", set});
    }
    words.insert(words.end(), more.begin(), more.end());
    return scratch_.run(words);
  }
  Scratch scratch_;
};

TEST_F(ClickLogs, PlainAndGzipEndInTheSameBits) {
  const std::string text = lines(700);
  write_file(scratch_ / "plain.txt", text);
  const gzFile file = ::gzopen((scratch_ / "packed.gz").c_str(), "wb");
  ASSERT_EQ(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  ::gzclose(file);
  const Ended plain = train("plain.txt");
  ASSERT_EQ(plain.status, 0) << plain.err;
  const std::string hash = scratch_.summary("weights_hash"), auc = scratch_.summary("val/auc");
  EXPECT_GT(std::stod(auc), 0);
  const Ended packed = train("packed.gz");
  ASSERT_EQ(packed.status, 0) << packed.err;
  EXPECT_EQ(scratch_.summary("weights_hash"), hash);
  EXPECT_EQ(scratch_.summary("val/auc"), auc);
  EXPECT_EQ(scratch_.summary("samples"), "192");
}

TEST_F(ClickLogs, ResumeGoesOnButNotUnderAnotherPreprocessing) {
  write_file(scratch_ / "plain.txt", lines(700));
  ASSERT_EQ(train("plain.txt").status, 0);
  const std::string hash = scratch_.summary("weights_hash");
  ASSERT_EQ(train("plain.txt", {"--set", "run.steps=4"}).status, 0);
  const Ended refused = train("plain.txt", {"--resume", "--set", "data.normalisation=torchrec"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err,
              ::testing::HasSubstr("was trained on other data: 'preprocessing: normalisation = dlrm, "));
  EXPECT_THAT(refused.err, ::testing::HasSubstr("'preprocessing: normalisation = torchrec, "));
  const Ended resumed = train("plain.txt", {"--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(scratch_.summary("weights_hash"), hash);
  const std::string manifest = read_file(scratch_ / "runs/tiny/latest/manifest.json");
  EXPECT_THAT(manifest,
              ::testing::HasSubstr("preprocessing: normalisation = dlrm, categorical = hash, rows = 200 "));
}

TEST_F(ClickLogs, MalformedLinesAreSaidAndRefusedAboveTheShare) {
  write_file(scratch_ / "broken.txt", lines(700) + "1\t2\t3\n");
  const Ended refused = train("broken.txt");
  EXPECT_EQ(refused.status, 2);
  const std::string found =
      "data file '{dir}/broken.txt': 1 of 701 lines are no rows of Criteo's logs: 1 with another number of "
      "fields "
      "than 40 (line 701)";
  EXPECT_THAT(scratch_.plain(refused.err),
              ::testing::HasSubstr(
                  found + ". That is more than max_bad_share = 0.001 allows; mend the file, or raise it"));
  EXPECT_FALSE(fs::exists(scratch_ / "runs")) << "nothing was begun";
  const Ended taken = train("broken.txt", {"--set", "data.max_bad_share=0.01"});
  ASSERT_EQ(taken.status, 0) << taken.err;
  EXPECT_EQ(scratch_.plain(taken.err), "dataset.criteo: " + found + ". They are left out\n");
  EXPECT_THAT(scratch_.plain(scratch_.log()), ::testing::HasSubstr(found + ". They are left out\n"));
}

}  // namespace
}  // namespace tenon::integration::click_logs_test
