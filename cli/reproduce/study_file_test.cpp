// Study files: values that are read, and messages for wrong files.
#include "reproduce/render.hpp"
#include "reproduce/study_kind.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <test_paths.hpp>

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

namespace tenon::reproduce {
namespace {

using ab::testing::fresh_folder;
using ab::testing::replaced;
using ab::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kStudy = R"(title = "Formats"
paper = "A paper, table 1"
question = "Which format?"
base = "base.toml"
baseline = "a"
reference = "b"

[size.default]
steps = 100
seeds = [1, 2, 3]
minutes = 12

[size.quick]
steps = 5
seeds = [7]
set = ["data.batch=2"]

[[arm]]
name = "a"

[[arm]]
name = "b"
title = "Arm B"
note = "keeps nothing"
extends = ["preset.toml"]
set = ["precision.type=bf16"]

[[paper_value]]
arm = "b"
value = -0.7
what = "12B"
source = "figure 4"
)";

StudyFile read(const std::string& text, const std::string& folder) {
  const std::string path = folder + "/formats.toml";
  write_text(path, text);
  for (const char* extended : {"/base.toml", "/preset.toml"}) write_text(folder + extended, "");
  return read_study(path);
}

TEST(StudyFile, IsReadWhole) {
  const std::string folder = fresh_folder("study_whole");
  const StudyFile study = read(kStudy, folder);
  EXPECT_EQ(study.name, "formats");
  EXPECT_EQ(study.base, folder + "/base.toml");
  EXPECT_EQ(study.metric, "val/loss");
  EXPECT_TRUE(study.lower_is_better);
  ASSERT_EQ(study.sizes.size(), 2u);
  EXPECT_EQ(study.sizes[0].name, "quick");  // in the order of their effort, not of the file
  EXPECT_EQ(study.sizes[1].steps, 100);
  EXPECT_THAT(study.sizes[1].seeds, ElementsAre(1, 2, 3));
  ASSERT_EQ(study.arms.size(), 2u);
  EXPECT_EQ(study.arms[0].title, "a");
  EXPECT_EQ(study.arms[1].title, "Arm B");
  EXPECT_THAT(study.arms[1].arm.extends, ElementsAre(folder + "/preset.toml"));
  ASSERT_EQ(study.paper_values.size(), 1u);
  EXPECT_EQ(study.paper_values[0].value, -0.7);
}

TEST(StudyFile, BecomesAnExperimentOfItsSize) {
  const StudyFile study = read(kStudy, fresh_folder("study_experiment"));
  const ab::Experiment e = experiment_of(study, *study.size("quick"));
  EXPECT_EQ(e.budget.amount, 5);
  EXPECT_THAT(e.seeds, ElementsAre(7));
  EXPECT_THAT(e.arms[0].set, ElementsAre("data.batch=2"));
  // The arm's own words come last and override.
  EXPECT_THAT(e.arms[1].set, ElementsAre("data.batch=2", "precision.type=bf16"));
}

struct Wrong {
  const char *from, *to, *message;
};

TEST(StudyFile, ErrorsNamePlaceAndProblem) {
  const std::string folder = fresh_folder("study_wrong");
  const Wrong cases[] = {
      {"baseline = \"a\"", "baseline = \"bb\"",
       "{file}:5:12: baseline: no arm is called 'bb'; did you mean 'b'?"},
      {"reference = \"b\"", "reference = \"x\"", "{file}:6:13: reference: no arm is called 'x'"},
      {"name = \"b\"", "name = \"a\"", "{file}:22:8: arm[1].name: two arms are called 'a'"},
      {"name = \"b\"", "name = \"../b\"",
       "{file}:22:8: arm[1].name: '../b' cannot name a folder; use letters, digits, '.', '_' and '-', at "
       "most 64, "
       "not starting with '.' or '-'"},
      {"[size.quick]", "[size.quik]",
       "{file}:13:7: there is no size 'quik'; did you mean 'quick'?; a study has quick, default, full and "
       "cuda"},
      {"seeds = [1, 2, 3]", "seeds = [1, 2, 2]", "{file}:10:9: size.default.seeds: a seed is repeated"},
      {"seeds = [1, 2, 3]", "seeds = []",
       "{file}:10:9: size.default.seeds: name at least one seed, e.g. seeds = [1, 2, 3]"},
      {"arm = \"b\"", "arm = \"c\"", "{file}:29:7: paper_value[0].arm: no arm is called 'c'"},
      {"title = \"Formats\"", "titel = \"Formats\"", "did you mean 'title'?"},
      {"steps = 100", "steps = 0", "{file}:9:9:"},
      {"question", "figure = \"shares\"\nquestion",
       "{file}:3:10: figure: a figure of shares needs shares = [\"train/...\"]"},
      {"note = \"keeps nothing\"", "baseline = \"nobody\"",
       "{file}:24:12: arm[1].baseline: no arm is called 'nobody'"},
  };
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.to);
    try {
      read(replaced(kStudy, wrong.from, wrong.to), folder);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      std::string expected = wrong.message;
      if (expected.starts_with("{file}")) expected.replace(0, 6, folder + "/formats.toml");
      EXPECT_THAT(error.what(), HasSubstr(expected));
    }
  }
}

TEST(StudyFile, AMissingSizeIsNamed) {
  std::string text = replaced(kStudy, "[size.quick]", "[size.full]");
  try {
    read(text, fresh_folder("study_size"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("[size.quick] is missing; every study has a quick and a default size"));
  }
}

TEST(StudyFile, AnUnknownStudyIsRefusedWithTheNearest) {
  try {
    study_path("nvfp4-ablatoin");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "tenon reproduce: there is no study 'nvfp4-ablatoin'; did you mean 'nvfp4-ablation'?; `tenon "
        "reproduce` lists them, and a name that ends in .toml is a file");
  }
}

TEST(StudyList, NamesSizesAndTimes) {
  const StudyFile study = read(kStudy, fresh_folder("study_list"));
  EXPECT_EQ(list_text({study}),
            "formats\n  Formats\n  A paper, table 1\n"
            "  --quick   2 arms x 1 seed x 5 updates\n"
            "  default   2 arms x 3 seeds x 100 updates, about 12 min on two cores\n"
            "\nRun one: tenon reproduce NAME [--quick|--full|--cuda] [--out DIR]\n");
  EXPECT_THAT(list_json({study}), HasSubstr("\"paper\": \"A paper, table 1\""));
}

TEST(StudyFiles, ThoseShippedAreReadable) {
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TENON_SOURCE_DIR "/configs/studies")) {
    SCOPED_TRACE(entry.path().string());
    const StudyFile study = read_study(entry.path().string());
    // Simulators, and ranks that are threads, run on processors; sites' times are scripted or declared.
    const std::set<std::string_view> no_device{"map", "slabs", "sites", "run_sites"};
    if (!no_device.contains(study.kind->table())) {
      EXPECT_NE(study.size("cuda"), nullptr);
    }
    EXPECT_NE(study.size("full"), nullptr);
    EXPECT_TRUE(std::filesystem::exists(study.base)) << study.base;
    EXPECT_TRUE(std::filesystem::exists(TENON_SOURCE_DIR "/docs/reproductions/" + study.name + ".md"));
    ++found;
  }
  EXPECT_GE(found, 2u);
}

}  // namespace
}  // namespace tenon::reproduce
