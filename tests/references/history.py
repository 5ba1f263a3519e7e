"""The history of predictions as plain lists, one dictionary per image, pixel by pixel."""

IGNORE = 255


class SlowHistory:
    def __init__(self):
        self.epochs = {}  # case -> epochs recorded
        self.predictions = {}  # case -> list of flat lists of labels
        self.masks = {}  # case -> flat list

    def record(self, cases, predictions, epoch, masks):
        for row, case in enumerate(cases):
            if epoch in self.epochs.setdefault(case, []):
                continue
            self.epochs[case].append(epoch)
            self.predictions.setdefault(case, []).append(list(predictions[row]))
            self.masks[case] = list(masks[row])

    def consistency(self, case):
        said = self.predictions[case]
        shares = []
        for pixel in range(len(said[0])):
            agreements = 0
            for epoch in range(1, len(said)):
                if said[epoch][pixel] == said[epoch - 1][pixel]:
                    agreements += 1
            shares.append(agreements / (len(said) - 1) if len(said) > 1 else 1.0)
        return shares

    def correctness(self, case):
        said = self.predictions[case]
        shares = []
        for pixel, truth in enumerate(self.masks[case]):
            correct = 0
            for labels in said:
                if truth != IGNORE and labels[pixel] == truth:
                    correct += 1
            shares.append(correct / len(said))
        return shares

    def frequency(self, case, label):
        said = self.predictions[case]
        return [
            sum(1 for labels in said if labels[pixel] == label) / len(said)
            for pixel in range(len(said[0]))
        ]
