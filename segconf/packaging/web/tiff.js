// TIFF files of one picture: strips or tiles of 8 or 16 bits, plain, PackBits, LZW or deflated.
const tiffHeader = () => { throw new Refused("TIFF is not read by this page yet."); };
