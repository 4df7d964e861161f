// Broken plugins and the program: `tenon inspect FILE` refuses each with its text and status 3, a run that
// needs one ends with status 3, and a run that does not continues and reports what it left out.
#include "bad_files.hpp"
#include "run_program.hpp"
#include "support.hpp"

#include <elf.h>

#include <cstring>

namespace tenon::integration {
namespace {

using fixture::BadFile;
using testing::HasSubstr;

const std::string kBadFolder = std::string(FIXTURES) + "/bad";
const char* const kTellsNothing = "";

class BadFileInProgram : public testing::TestWithParam<BadFile> {};

TEST_P(BadFileInProgram, EndsInspectWithItsTextAndStatusThree) {
  const fs::path file = fixture::path(std::string("bad/") + GetParam().file);
  const Scratch scratch;
  const Ended ended = scratch.run({"inspect", file.string()});
  EXPECT_EQ(ended.err, "tenon: " + fixture::filled(GetParam().message, file) + "\n");
  EXPECT_EQ(ended.status, 3) << ended.signal;
  // The readable part is shown even for a file that cannot be loaded.
  if (ended.err.find("section") == std::string::npos) {
    EXPECT_THAT(ended.out, HasSubstr("This much is read from the file; no code of it ran."));
  }
}

std::vector<BadFile> refused_files() {
  std::vector<BadFile> files;
  for (const BadFile& bad : fixture::kBadFiles) {
    // Epoch 0 is this program's own, unless the program has a later one.
    if (std::strcmp(bad.file, "old_epoch") != 0) files.push_back(bad);
  }
  files.push_back(
      {"crashes_in_static",
       "Cannot load '{file}': loading it ended the process with signal 11 (Segmentation fault). "
       "It ran in a child process only. Its last words: about to use a device that is not there"});
  files.push_back({"exits_in_init",
                   "Cannot load '{file}': its init ended the process with exit status 9. It ran in a child "
                   "process only."});
  return files;
}
INSTANTIATE_TEST_SUITE_P(Files, BadFileInProgram, testing::ValuesIn(refused_files()),
                         [](const auto& info) { return std::string(info.param.file); });

TEST(BadFiles, WithoutLoadingNoCodeRuns) {
  const Scratch scratch;
  const Ended ended = scratch.run({"inspect", kBadFolder + "/crashes_in_static.so", "--no-load"});
  EXPECT_EQ(ended.err, kTellsNothing);
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, HasSubstr("bad.crashes_in_static 1.0.0\n"));
  EXPECT_THAT(ended.out, HasSubstr("components  toy.plain\n"));
}

// Paths that are not plugins. Each entry makes `name` in a folder; {it} is its path.
struct OddPath {
  const char* name;
  void (*make)(const fs::path& it);
  const char* message;
};

void PrintTo(const OddPath& odd, std::ostream* out) {
  *out << odd.name;
}

const OddPath kOddPaths[] = {
    {"text.so", [](const fs::path& it) { write_file(it, "hello"); },
     "Cannot load '{it}': it is not an ELF file. No plugin code was run."},
    {"empty.so", [](const fs::path& it) { write_file(it, ""); },
     "Cannot load '{it}': it is not an ELF file. No plugin code was run."},
    {"absent.so", [](const fs::path&) {}, "Cannot load '{it}': No such file or directory."},
    {"folder.so", [](const fs::path& it) { fs::create_directory(it); },
     "Cannot load '{it}': it is not a regular file. No plugin code was run."},
    {"folder", [](const fs::path& it) { fs::create_directory(it); },
     "Cannot load '{it}': it is not a regular file. No plugin code was run."},
    {"fifo.so", [](const fs::path& it) { ASSERT_EQ(::mkfifo(it.c_str(), 0600), 0); },
     "Cannot load '{it}': it is not a regular file. No plugin code was run."},
    {"device.so", [](const fs::path& it) { fs::create_symlink("/dev/zero", it); },
     "Cannot load '/dev/zero': it is not a regular file. No plugin code was run."},
    {"loop.so", [](const fs::path& it) { fs::create_symlink(it, it); },
     "Cannot load '{it}': Too many levels of symbolic links."},
    {"dangling.so", [](const fs::path& it) { fs::create_symlink(it.string() + ".gone", it); },
     "Cannot load '{it}': No such file or directory."},
    {"object.so",
     [](const fs::path& it) {
       std::string bytes = read_file(fixture::path("good/good"));
       reinterpret_cast<Elf64_Ehdr*>(bytes.data())->e_type = ET_REL;
       write_file(it, bytes);
     },
     "Cannot load '{it}': it is an ELF file but no shared library. No plugin code was run."},
    {"narrow.so",
     [](const fs::path& it) {
       Elf32_Ehdr head{};
       std::memcpy(head.e_ident, ELFMAG, SELFMAG);
       head.e_ident[EI_CLASS] = ELFCLASS32;
       head.e_ident[EI_DATA] = ELFDATA2LSB;
       head.e_type = ET_DYN;
       head.e_machine = EM_386;
       write_file(it, std::string(reinterpret_cast<const char*>(&head), sizeof head) + std::string(64, '\0'));
     },
     "Cannot load '{it}': it is not a 64-bit ELF file. No plugin code was run."},
#if defined(__x86_64__)
    {"foreign.so",
     [](const fs::path& it) {
       std::string bytes = read_file(fixture::path("good/good"));
       reinterpret_cast<Elf64_Ehdr*>(bytes.data())->e_machine = EM_AARCH64;
       write_file(it, bytes);
     },
     "Cannot load '{it}': it is built for 64-bit Arm (ELF machine 183), this program runs on 64-bit x86 (ELF "
     "machine 62). No plugin code was run."},
#endif
};

class OddPathInProgram : public testing::TestWithParam<OddPath> {};

TEST_P(OddPathInProgram, IsRefusedByNameAndStatusThree) {
  const Scratch scratch;
  const fs::path it = scratch / GetParam().name;
  GetParam().make(it);
  const Ended ended = scratch.run({"inspect", it.string()});
  EXPECT_EQ(ended.err, "tenon: " + replaced(GetParam().message, "{it}", it.string()) + "\n");
  EXPECT_EQ(ended.out, kTellsNothing);
  EXPECT_EQ(ended.status, 3) << ended.signal;
}
INSTANTIATE_TEST_SUITE_P(Paths, OddPathInProgram, testing::ValuesIn(kOddPaths),
                         [](const auto& info) { return replaced(info.param.name, ".", "_"); });

TEST(BadFiles, OnePermittedToNobodyIsRefusedByName) {
  const Scratch scratch;
  const fs::path it = scratch / "secret.so";
  fs::copy_file(fixture::path("good/good"), it);
  fs::permissions(it, fs::perms::none);
  // Root may read everything; this becomes another user for a moment.
  const bool root = ::geteuid() == 0;
  ASSERT_EQ(root ? ::seteuid(65534) : 0, 0);
  const std::string message = fixture::error_text([&] { plugin::read_abi_tag(it); }, ErrorKind::kPlugin);
  ASSERT_EQ(root ? ::seteuid(0) : 0, 0);
  EXPECT_EQ(message, "Cannot load '" + it.string() +
                         "': the file cannot be read: Permission denied. No plugin code was run.");
}

// Components that load and then break their contract.
struct Misbehaviour {
  const char* id;
  int status;
  const char* message;
};

void PrintTo(const Misbehaviour& c, std::ostream* out) {
  *out << c.id;
}

class MisbehaviourInRun : public testing::TestWithParam<Misbehaviour> {};

TEST_P(MisbehaviourInRun, EndsItWithNameAndReason) {
  const Scratch scratch;
  const Ended ended = scratch.train({"--set", std::string("schedule.type=") + GetParam().id},
                                    {{"TENON_PLUGIN_PATH", kBadFolder + "/misbehaves.so"}});
  EXPECT_EQ(replaced(ended.err, std::string(100, 'x'), "X"),
            std::string("tenon") + GetParam().message + "\n");
  EXPECT_EQ(ended.status, GetParam().status) << ended.signal;
}

const Misbehaviour kMisbehaviours[] = {
    {"null_silent", 3,
     ": plugin bad.misbehaves (schedule.null_silent, rank 0): create failed and gave no reason"},
    {"null_with_reason", 3,
     ": plugin bad.misbehaves (schedule.null_with_reason, rank 0): no phase of the moon suits"},
    {"null_with_endless_reason", 3,
     ": plugin bad.misbehaves (schedule.null_with_endless_reason, rank 0): XXXXXXXXXXXXXXXXXXXX"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
    {"throws_a_number", 3,
     ": plugin bad.misbehaves (schedule.throws_a_number, rank 0): threw an object that is not a "
     "std::exception"},
    {"throws_later", 3,
     " train: plugin bad.misbehaves (schedule.throws_later, rank 0, step 2): threw an object that is not a "
     "std::exception"},
    {"exits", 3, ": exit was called inside plugin bad.misbehaves, component schedule.exits, rank 0"},
    {"crashes", -1,
     ": fatal signal 11 (Segmentation fault) inside plugin bad.misbehaves, component schedule.crashes, rank "
     "0"},
};
INSTANTIATE_TEST_SUITE_P(Schedules, MisbehaviourInRun, testing::ValuesIn(kMisbehaviours),
                         [](const auto& info) { return std::string(info.param.id); });

TEST(BadFiles, ACreateThatDoesNotReturnEndsTheProgramAtTheDeadline) {
  const Scratch scratch;
  const Ended ended = scratch.train({"--set", "schedule.type=sleeps", "--set", "run.deadline=1"},
                                    {{"TENON_PLUGIN_PATH", kBadFolder + "/misbehaves.so"}});
  EXPECT_EQ(ended.err,
            "tenon: plugin bad.misbehaves (schedule.sleeps, rank 0): create did not return within 1 s. Code "
            "of a plugin cannot "
            "be stopped from outside, so the program ends.\n");
  EXPECT_EQ(ended.status, 3) << ended.signal;
}

// In a child process, a failure that ends or stops a run is a line of the report.
TEST(BadFiles, ConformanceSaysHowACreateEnded) {
  struct End {
    const char *id, *time_limit, *words;
  };
  const End kEnds[] = {
      {"exits", "30", "exit was called inside plugin bad.misbehaves, component schedule.exits"},
      {"sleeps", "1", "it did not end within 1 s, it was killed."},
      {"crashes", "30", "it ended the process with signal 11 (Segmentation fault)."},
      {"throws_a_number", "30",
       "schedule.throws_a_number, rank 0): threw an object that is not a std::exception"},
  };
  for (const auto& [id, time_limit, words] : kEnds) {
    const Scratch scratch;
    const Ended ended = scratch.run({"conformance", kBadFolder + "/misbehaves.so", "--component",
                                     std::string("schedule.") + id, "--filter", "component.is_made_again",
                                     "--time-limit", time_limit});
    EXPECT_EQ(ended.status, 3) << id << ended.err;
    EXPECT_THAT(ended.out, HasSubstr(words)) << id;
  }
}

TEST(BadFiles, HurtNoRunThatDoesNotNeedThem) {
  const Scratch scratch;
  const Ended ended = scratch.train({}, {{"TENON_PLUGIN_PATH", kBadFolder}});
  EXPECT_EQ(ended.err, kTellsNothing);
  EXPECT_EQ(ended.status, 0);
  // The log names the omitted plugins and the reasons.
  for (const BadFile& bad : fixture::kBadFiles) {
    const std::string name = bad.file;
    if (name != "no_section" && name != "new_epoch" && name != "string_abi" && name != "glibcxx_debug")
      continue;
    const fs::path file = fixture::path("bad/" + name);
    EXPECT_THAT(scratch.log(), HasSubstr("a plugin was left out: " + fixture::filled(bad.message, file)));
  }
}

TEST(BadFiles, StopARunThatNeedsThem) {
  const Scratch scratch;
  const Ended ended = scratch.train({"--set", "schedule.type=late"}, {{"TENON_PLUGIN_PATH", kBadFolder}});
  const fs::path file = fixture::path("bad/glibcxx_debug");
  EXPECT_THAT(ended.err, HasSubstr("schedule.late is offered, but its plugin failed: Cannot load '" +
                                   file.string() + "': built for debug-containers on"));
  EXPECT_EQ(ended.status, 3);
}

}  // namespace
}  // namespace tenon::integration
