// How a model's weights are known to other programs ("tenon.model.names/1"), asked of a model through query.
// `tenon export` writes what it says; a model that does not offer it goes out under its own names.
#pragma once

#include <tenon/dataset.hpp>

#include <string>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

/// A weight that goes out differently from how it is kept.
struct ExportedWeight {
  std::string parameter;  ///< its name here
  std::string name;       ///< its name there
  double factor = 1;      ///< multiplies every element
};

/// A text file that belongs beside the weights, such as config.json.
struct ExportedFile {
  std::string name;  ///< without folder
  std::string text;
};

struct ExportPlan {
  std::vector<ExportedWeight> weights;  ///< those not named keep name and value
  std::vector<ExportedFile> files;
};

class ModelExport {
 public:
  static constexpr const char* kId = "tenon.model.names/1";
  virtual ~ModelExport();
  /// Pure in options and data. Throws Error(kConfig) for options that the other programs have no form for.
  virtual ExportPlan export_plan(const DataInfo& data) = 0;
};

TENON_ABI_END
