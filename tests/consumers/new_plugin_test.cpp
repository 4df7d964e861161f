// tenon new-plugin as a user types it: files, output, and full refusals that leave no files. scaffold.cmake
// tests that the projects build and train.
#include "run_program.hpp"

#include <regex>

namespace tenon::integration {
namespace {

constexpr const char* kKinds =
    "dataset, device, layer, model, observer, optimizer, power, precision, recovery, reward, schedule, "
    "simulator, sync, tier, tokenizer, transform, transport)";
constexpr const char* kRule = "expected at most 30 of lower case, digits and '_', a letter first";

struct Refusal {
  const char* name;
  std::vector<std::string> arguments;
  std::string message;
  std::map<std::string, std::string> environment = {};
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}

std::vector<std::string> make(const std::string& kind, const std::string& name,
                              const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"new-plugin", "--kind", kind, "--name", name};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class NewPluginRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(NewPluginRefusal, SaysWhyAndWritesNothing) {
  const Refusal& refusal = GetParam();
  const Scratch scratch;
  write_file(scratch / "taken/precious.txt", "mine\n");
  const auto before = tree(scratch.folder());
  const Ended ended = scratch.run(refusal.arguments, refusal.environment);
  const std::string said =
      std::regex_replace(scratch.plain(ended.err), std::regex("lion\\.[0-9]+"), "lion.{pid}");
  EXPECT_EQ(said, "tenon: tenon new-plugin: " + refusal.message + "\n");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_THAT(changes(scratch.folder(), before), testing::IsEmpty());
  for (const auto& entry : fs::directory_iterator(scratch.folder()))
    EXPECT_FALSE(entry.is_directory() && entry.path().filename() != "taken") << entry.path();
}

const Refusal kRefusals[] = {
    {"no_kind", {"new-plugin", "--name", "lion"}, std::string("--kind is missing (known: ") + kKinds},
    {"unknown_kind", make("optimiser", "lion"),
     std::string("there is no kind 'optimiser'; did you mean 'optimizer'? (known: ") + kKinds},
    {"far_kind", make("temperature", "lion"),
     std::string("there is no kind 'temperature' (known: ") + kKinds},
    {"common_is_no_kind", make("common", "lion"), std::string("there is no kind 'common' (known: ") + kKinds},
    {"a_path_is_no_kind", make("../templates/optimizer", "lion"),
     std::string("there is no kind '../templates/optimizer' (known: ") + kKinds},
    {"no_name", {"new-plugin", "--kind", "optimizer"}, std::string("--name is missing; ") + kRule},
    {"capitals", make("optimizer", "Lion"), std::string("--name 'Lion': ") + kRule},
    {"digit_first", make("optimizer", "2lion"), std::string("--name '2lion': ") + kRule},
    {"dash", make("optimizer", "my-lion"), std::string("--name 'my-lion': ") + kRule},
    {"path_as_name", make("optimizer", "../lion"), std::string("--name '../lion': ") + kRule},
    {"not_ascii", make("optimizer", "l\xc3\xb6we"), std::string("--name 'l\xc3\xb6we': ") + kRule},
    {"too_long", make("optimizer", std::string(31, 'a')), "--name '" + std::string(31, 'a') + "': " + kRule},
    {"taken_by_cmake", make("optimizer", "test"),
     "--name 'test': builds have a target of this name already; choose another one"},
    {"taken_by_tenon", make("optimizer", "tenon"),
     "--name 'tenon': builds have a target of this name already; choose another one"},
    {"offered", make("optimizer", "adamw"),
     "--name 'adamw': optimizer.adamw is offered by tenon.adamw already "
     "({build}/lib/tenon/plugins/tenon_optimizer_adamw.so); choose another one"},
    {"vendor", make("optimizer", "lion", {"--vendor", "Acme Inc."}),
     std::string("--vendor 'Acme Inc.': ") + kRule},
    {"empty_out", make("optimizer", "lion", {"--out", ""}), "--out is empty; name a folder, new or empty"},
    {"folder_in_use", make("optimizer", "lion", {"--out", "taken"}),
     "cannot write the project to '{dir}/taken': the folder is not empty; choose another --out, or empty it"},
    {"file_in_the_way", make("optimizer", "lion", {"--out", "run.toml"}),
     "cannot write the project to '{dir}/run.toml': it exists and is no folder; choose another --out"},
    {"below_a_file", make("optimizer", "lion", {"--out", "run.toml/lion"}),
     "cannot write the project to '{dir}/run.toml/lion': cannot make folder {dir}/run.toml/.lion.{pid}: Not "
     "a directory"},
    {"unwritable", make("optimizer", "lion", {"--out", "/proc/lion"}),
     "cannot write the project to '/proc/lion': cannot make folder /proc/.lion.{pid}: No such file or "
     "directory"},
    {"below_a_new_folder", make("optimizer", "lion", {"--out", "/proc/new/folder/lion"}),
     "cannot write the project to '/proc/new/folder/lion': cannot make folder /proc/new: No such file or "
     "directory"},
    {"unknown_option", make("optimizer", "lion", {"--vender", "acme"}),
     "there is no option '--vender'; did you mean '--vendor'? (see: tenon new-plugin --help)"},
};

INSTANTIATE_TEST_SUITE_P(Bad, NewPluginRefusal, testing::ValuesIn(kRefusals),
                         [](const auto& info) { return info.param.name; });

TEST(NewPlugin, WritesEveryFileAndSaysWhatToTypeNext) {
  const Scratch scratch;
  const Ended ended = scratch.run(make("optimizer", "my_2nd_lion", {"--vendor", "acme"}));
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.out,
            "wrote 10 files to my_2nd_lion\n"
            "  .clangd\n  .gitignore\n  .vscode/launch.json\n  CMakeLists.txt\n  CMakePresets.json\n  "
            "README.md\n  base.toml\n  ci.sh\n"
            "  my_2nd_lion.cpp\n  run.toml\n\n"
            "next:\n"
            "  cd my_2nd_lion\n"
            "  cmake --preset release -DCMAKE_PREFIX_PATH=PREFIX\n"
            "  cmake --build --preset release\n"
            "  ctest --preset release\n"
            "  TENON_PLUGIN_PATH=$PWD/build/release tenon train run.toml\n"
            "PREFIX is where Tenon is installed: cmake --install BUILD --prefix PREFIX\n");
  const auto files = tree(scratch / "my_2nd_lion");
  EXPECT_EQ(files.size(), 10u);
  for (const auto& [name, text] : files) EXPECT_FALSE(text.find("@") != std::string::npos) << name;
  EXPECT_THAT(files.at("my_2nd_lion.cpp"), testing::HasSubstr("class My2ndLion final"));
  EXPECT_THAT(files.at("my_2nd_lion.cpp"), testing::HasSubstr(".id = \"acme.my_2nd_lion\""));
  EXPECT_EQ(::access((scratch / "my_2nd_lion/ci.sh").c_str(), X_OK), 0);
}

TEST(NewPlugin, TakesAnEmptyFolder) {
  const Scratch scratch;
  fs::create_directories(scratch / "deep/empty");
  const Ended ended = scratch.run(make("sync", "meet", {"--out", "deep/empty/"}));
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.status, 0);
  EXPECT_TRUE(fs::exists(scratch / "deep/empty/meet.cpp"));
  EXPECT_EQ(tree(scratch / "deep").size(), tree(scratch / "deep/empty").size());
}

TEST(NewPlugin, AFullDiskLeavesNothing) {
  const Scratch scratch;
  const Ended ended =
      Child({make("optimizer", "lion", {"--out", "new/deep/lion"}), scratch.folder(), {}, 600}).wait();
  EXPECT_THAT(
      scratch.plain(ended.err),
      testing::StartsWith("tenon: tenon new-plugin: cannot write the project to '{dir}/new/deep/lion': "));
  EXPECT_THAT(ended.err, testing::HasSubstr("File too large"));
  EXPECT_EQ(ended.status, 2);
  for (const auto& entry : fs::directory_iterator(scratch.folder()))
    EXPECT_FALSE(entry.is_directory()) << entry.path();
}

}  // namespace
}  // namespace tenon::integration
