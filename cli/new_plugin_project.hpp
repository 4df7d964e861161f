// The files of a new plugin project, made from the templates shipped with Tenon. It knows no kind by name: a
// kind is a folder of templates. It uses no registry and prints nothing.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tenon::cli {

/// Folder of the templates: share/tenon/templates of the installation, sdk/templates of the sources. Throws
/// Error(kRun) if there are none.
std::filesystem::path template_folder();

/// Kinds that have templates, sorted.
std::vector<std::string> template_kinds(const std::filesystem::path& templates);

/// Values of the placeholders in a template.
struct ProjectNames {
  std::string kind;    ///< "optimizer"
  std::string name;    ///< "my_lion": @NAME@, and `component` in names of files
  std::string vendor;  ///< "example": @VENDOR@
};

/// "MyLion" of "my_lion".
std::string class_name(const std::string& name);

/// Relative path -> text of every file of the project: those of common/, then those of the kind. Throws
/// Error(kRun) for a template that holds an unknown placeholder.
std::map<std::string, std::string> project_files(const std::filesystem::path& templates,
                                                 const ProjectNames& names);

/// Writes all files or none: they are made in a folder beside `folder`, which then takes its name. `folder`
/// must be absent or an empty folder. Throws Error(kConfig).
void write_project(const std::filesystem::path& folder, const std::map<std::string, std::string>& files);

}  // namespace tenon::cli
