# What lme4 finds for the sets of make_sets.py: the Laplace approximation (nAGQ = 1), by bobyqa.
# The likelihood of 0/1 rows has no binomial coefficients, so it compares with ours as it is.
suppressMessages(library(lme4))
arguments <- commandArgs(trailingOnly = FALSE)
here <- dirname(sub("--file=", "", arguments[grep("--file=", arguments)]))
control <- glmerControl(optimizer = "bobyqa", optCtrl = list(maxfun = 1e5, rhoend = 1e-8))
entries <- c()
for (file in sort(list.files(here, pattern = "[.]csv$"))) {
  name <- sub("[.]csv$", "", file)
  if (grepl("_effects$", name)) next
  data <- read.csv(file.path(here, file))
  fit <- suppressMessages(suppressWarnings(
    glmer(correct ~ confidence + (1 + confidence | group), data, family = binomial, control = control)
  ))
  covariance <- VarCorr(fit)$group
  effects <- ranef(fit)$group
  write.csv(
    data.frame(group = rownames(effects), U = signif(effects[, 1], 9), V = signif(effects[, 2], 9)),
    file.path(here, paste0(name, "_effects.csv")), row.names = FALSE, quote = FALSE
  )
  numbers <- c(-as.numeric(logLik(fit)), fixef(fit), covariance[1, 1], covariance[2, 2], covariance[1, 2])
  keys <- c("negative_log_likelihood", "B0", "B1", "var_U", "var_V", "cov_UV")
  body <- paste0('    "', keys, '": ', formatC(numbers, digits = 10, format = "g"), collapse = ",\n")
  entries <- c(entries, paste0('  "', name, '": {\n', body, "\n  }"))
}
made <- paste0('  "made_by": "lme4 ', packageVersion("lme4"), ", ", R.version.string, '"')
writeLines(c("{", paste(c(made, entries), collapse = ",\n"), "}"), file.path(here, "expected.json"))
