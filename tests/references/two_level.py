"""The two-level bootstrap as a plain loop: pool the pixels of the images drawn, run after run."""

from tests.references.metrics import aurc, ece


def resampled_differences(runs, baseline, image_draws, seed_draws):
    """AURC and ECE of a method minus those of its baseline, resample after resample.

    Args:
        runs: for each run of the method, for each image, pixels (confidence, is right).
        baseline: those of the other method.
        image_draws: for each resample, the images drawn.
        seed_draws: for each resample, the runs drawn of the method and of the baseline.
    """
    found = []
    for images, (own, other) in zip(image_draws, seed_draws, strict=True):
        ours, theirs = mean_scores(runs, own, images), mean_scores(baseline, other, images)
        found.append({name: (ours[name] - theirs[name], theirs[name]) for name in ours})
    return found


def mean_scores(runs, drawn, images):
    scores = []
    for number in drawn:
        pixels = [pixel for image in images for pixel in runs[number][image]]
        confidence, right = zip(*pixels, strict=True)
        scores.append({"aurc": aurc(confidence, right), "ece": ece(confidence, right)})
    return {name: sum(one[name] for one in scores) / len(scores) for name in scores[0]}
