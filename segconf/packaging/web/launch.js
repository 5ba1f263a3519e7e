// The model page: the review page has started, now the model does.
started.then(() => {
  if (window.segconfOld) return;
  find("guard").remove();
  startIntake();
});
