// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

/// What the gateway needs of USDC. `transferWithAuthorization` is left out on purpose: anyone may submit one, so a
/// deposit built on it could be taken past the gateway and credited to nobody.
interface IUsdc is IERC20 {
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes memory signature
    ) external;

    function isBlacklisted(address account) external view returns (bool);
}
