// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

/// @title ReadEach
///
/// @notice Reads one view of a contract for many addresses in a single `eth_call`, as creation code that is never deployed.
///
/// @dev The results are packed into eight bytes each: creation may return 24 KiB only. A first byte of 0 keeps them from looking like code
///      of a format that is refused. Reverts if a call fails or a result is larger.
contract ReadEach {
    error ReadFails(address account);

    /// @param target    The contract with the view
    /// @param callData  The call without its last argument, the address
    /// @param accounts  Addresses of 20 bytes each
    constructor(address target, bytes memory callData, bytes memory accounts) {
        bytes memory input = bytes.concat(callData, bytes32(0));
        uint256 count = accounts.length / 20;
        bytes memory results = new bytes(1 + 8 * count + 24);
        for (uint256 index = 0; index < count; index++) {
            address account;
            assembly ("memory-safe") {
                account := shr(96, mload(add(add(accounts, 32), mul(index, 20))))
                mstore(add(input, mload(input)), account)
            }
            (bool success, bytes memory answer) = target.staticcall(input);
            if (!success || answer.length < 32) revert ReadFails(account);
            uint256 value = abi.decode(answer, (uint256));
            if (value > type(uint64).max) revert ReadFails(account);
            assembly ("memory-safe") {
                mstore(add(add(results, 33), mul(index, 8)), shl(192, value))
            }
        }
        assembly ("memory-safe") {
            return(add(results, 32), add(1, mul(count, 8)))
        }
    }
}
