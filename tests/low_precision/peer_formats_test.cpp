// The same inputs through our formats and through those of ml_dtypes and torchao, compared by a Python that
// has them (peer_formats.py); skipped with the reason elsewhere.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "quantizing.hpp"
#include "test_paths.hpp"

namespace tenon::kernels::testing {
namespace {

namespace fs = std::filesystem;

/// Sections for the script: a line `name dtype count`, then the bytes.
class Sections {
 public:
  explicit Sections(const std::string& name)
      : path_(fs::temp_directory_path() / ("tenon-" + name + "-" + std::to_string(::getpid()))),
        out_(path_, std::ios::binary) {}
  ~Sections() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Sections(const Sections&) = delete;
  Sections& operator=(const Sections&) = delete;

  template <class T>
  void add(const std::string& name, const char* dtype, const std::vector<T>& values) {
    out_ << name << ' ' << dtype << ' ' << values.size() << '\n';
    out_.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(T)));
  }
  std::string finish() {
    out_.close();
    return path_.string();
  }

 private:
  fs::path path_;
  std::ofstream out_;
};

void compare_with_peer(const std::string& part, const std::string& path) {
  const std::string command = std::string("OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 '") +
                              TENON_PEER_PYTHON + "' '" + TENON_SOURCE_DIR +
                              "/tests/low_precision/peer_formats.py' " + part + " '" + path + "' 2>&1";
  std::string said;
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char block[4096];
  while (const std::size_t n = std::fread(block, 1, sizeof block, pipe)) said.append(block, n);
  const int status = WEXITSTATUS(::pclose(pipe));
  std::printf("%s", said.c_str());
  if (status == 77) GTEST_SKIP() << said;
  EXPECT_EQ(status, 0) << said;
}

bool no_python() {
  return std::string(TENON_PEER_PYTHON).find("NOTFOUND") != std::string::npos;
}

TEST(FormatsPeer, P04_ElementsAgreeWithMlDtypes) {
  if (no_python()) GTEST_SKIP() << "no Python 3";
  Sections sections("elements");
  std::mt19937 generator(4);
  std::vector<std::uint32_t> x(std::size_t{1} << 20);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<std::uint32_t>(generator());
    // Three of four in the range of the formats: exponents 2^-20 ... 2^19.
    if (i % 4 != 0) x[i] = (x[i] & 0x807fffffu) | (107u + (x[i] >> 23) % 40u) << 23;
  }
  sections.add("x", "uint32", x);
  for (const auto& [name, element] : {std::pair{"e2m1", Element::kE2M1},
                                      {"e2m3", Element::kE2M3},
                                      {"e3m2", Element::kE3M2},
                                      {"e4m3", Element::kE4M3},
                                      {"e5m2", Element::kE5M2}}) {
    std::vector<std::uint8_t> codes;
    for (const std::uint32_t bits : x) codes.push_back(encode(std::bit_cast<float>(bits), element));
    sections.add(name, "uint8", codes);
  }
  std::vector<std::uint8_t> powers;
  for (int exponent = -127; exponent <= 127; ++exponent)
    powers.push_back(encode_e8m0(std::ldexp(1.0f, exponent), PowerRounding::kTowardZero));
  sections.add("e8m0", "uint8", powers);
  compare_with_peer("elements", sections.finish());
}

TEST(FormatsPeer, P45_Nvfp4AndMxAgreeWithTorchao) {
  if (no_python()) GTEST_SKIP() << "no Python 3";
  constexpr std::int64_t kRows = 256, kColumns = 1024;
  Sections sections("torchao");
  std::mt19937 generator(45);
  std::normal_distribution<float> draw;
  std::vector<float> x(kRows * kColumns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float spread = std::exp(1.5f * static_cast<float>(static_cast<int>(i / 64 % 7) - 3));
    x[i] = to_float(to_bf16(draw(generator) * spread));
  }
  sections.add("shape", "int64", std::vector<std::int64_t>{kRows, kColumns});
  sections.add("x", "float32", x);
  const auto add = [&](const std::string& name, const Format& format) {
    const auto q = quantize_matrix(x, kRows, kColumns, format);
    sections.add(name + ".codes", "uint8", q.codes);
    sections.add(name + ".scales", "uint8", q.scales);
  };
  add("nvfp4", kNvfp4);
  for (const auto& [name, element] :
       {std::pair{"e2m1", Element::kE2M1}, {"e4m3", Element::kE4M3}, {"e5m2", Element::kE5M2}})
    for (const auto& [rule_name, rule] : {std::pair{"floor", PowerRule::kFloor},
                                          {"ceil", PowerRule::kCeil},
                                          {"even", PowerRule::kEven},
                                          {"rceil", PowerRule::kRoundUp}})
      add(std::string("mx_") + name + "_" + rule_name,
          {.element = element, .scaling = Scaling::kPower, .block_columns = 32, .power = rule});
  compare_with_peer("torchao", sections.finish());
}

}  // namespace
}  // namespace tenon::kernels::testing
