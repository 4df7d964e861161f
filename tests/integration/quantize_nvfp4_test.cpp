// `tenon quantize` in nvfp4 and fp8_block against matrices that NumPy quantized in the published order of
// operations (tests/reference/nvfp4_quantize.py, fp8_block_quantize.py): files are compared bit for bit.
#include "run_program.hpp"

#include "store/safetensors.hpp"
#include "store/testing/npy_bytes.hpp"

namespace tenon::integration::quantize_nvfp4_test {
namespace {

class RecordedMatrices {
 public:
  explicit RecordedMatrices(const std::string& record)
      : path_(std::string(TENON_SOURCE_DIR) + "/tests/reference/" + record + ".safetensors"),
        reader_(files_->open(path_), path_) {}

  /// A recorded tensor as a .npy file.
  std::string npy_of(const std::string& name, bool scalar = false) const {
    const SafetensorsEntry& entry = reader_.at(name);
    const std::vector<std::byte> bytes = reader_.read_all(entry);
    const std::string shape =
        scalar ? "()" : "(" + std::to_string(entry.shape[0]) + ", " + std::to_string(entry.shape[1]) + ")";
    return ::tenon::testing::npy_header(entry.file_dtype == "U8" ? "|u1" : "<f4", shape) +
           std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  /// Runs `tenon quantize x.npy WORDS` and compares its files with those recorded under `recorded`.
  void expect_bits(const Scratch& scratch, const std::string& recorded,
                   std::vector<std::string> words) const {
    SCOPED_TRACE(recorded);
    const std::string folder = scratch / recorded;
    words.insert(words.begin(), {"quantize", "x.npy", "--out", folder});
    const Ended ended = scratch.run(std::move(words));
    ASSERT_EQ(ended.status, 0) << ended.err;
    for (const char* part : {"codes", "block_scales", "dequantized"})
      EXPECT_EQ(read_file(folder + "/" + part + ".npy"), npy_of(recorded + "." + part)) << part;
    EXPECT_EQ(read_file(folder + "/tensor_scale.npy"), npy_of(recorded + ".tensor_scale", true));
  }

 private:
  std::unique_ptr<FileSystem> files_ = make_posix_files();
  std::string path_;
  SafetensorsReader reader_;
};

class Nvfp4Reference : public ::testing::TestWithParam<const char*> {};

TEST_P(Nvfp4Reference, P09_CodesAndScalesHaveThePublishedBits) {
  const std::string name = GetParam();
  const RecordedMatrices recorded("nvfp4_quantize");
  const Scratch scratch;
  write_file(scratch / "x.npy", recorded.npy_of(name + ".x"));
  for (const std::string block : {"1x16", "16x16"})
    recorded.expect_bits(scratch, name + "." + block, {"--format", "nvfp4", "--block", block});
}

INSTANTIATE_TEST_SUITE_P(Matrices, Nvfp4Reference,
                         ::testing::Values("one", "row", "column", "even", "ragged", "heavy", "zeros",
                                           "signed_zeros", "denormal", "denormal_beside_one", "tiny", "huge",
                                           "powers", "near_ties"),
                         [](const auto& info) { return std::string(info.param); });

class Fp8BlockReference : public ::testing::TestWithParam<const char*> {};

TEST_P(Fp8BlockReference, ScalesOfBothKindsHaveTheRecordedBits) {
  const std::string name = GetParam();
  const RecordedMatrices recorded("fp8_block_quantize");
  const Scratch scratch;
  write_file(scratch / "x.npy", recorded.npy_of(name + ".x"));
  for (const std::string block : {"1x128", "128x128"}) {
    for (const std::string scale : {"float", "power"}) {
      recorded.expect_bits(scratch, name + "." + block + "." + scale,
                           {"--format", "fp8_block", "--block", block, "--scale", scale});
    }
  }
  // Powers of two are the default.
  const Ended ended = scratch.run({"quantize", "x.npy", "--format", "fp8_block", "--out", "default"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(read_file(scratch / "default/block_scales.npy"),
            recorded.npy_of(name + ".1x128.power.block_scales"));
}

INSTANTIATE_TEST_SUITE_P(Matrices, Fp8BlockReference,
                         ::testing::Values("one", "row", "ragged", "heavy", "zeros", "signed_zeros",
                                           "denormal", "denormal_beside_one", "tiny", "huge", "wide"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tenon::integration::quantize_nvfp4_test
